"""Git output."""
