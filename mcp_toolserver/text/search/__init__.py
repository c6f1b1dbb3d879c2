"""Search patterns and notes."""
