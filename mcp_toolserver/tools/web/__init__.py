"""Read from the web."""
