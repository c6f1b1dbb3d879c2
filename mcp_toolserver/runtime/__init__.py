"""The only folder that touches the operating system; it implements the capabilities."""
