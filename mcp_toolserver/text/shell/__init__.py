"""Commands and their output."""
