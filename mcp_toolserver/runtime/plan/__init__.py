"""Plan mode."""
