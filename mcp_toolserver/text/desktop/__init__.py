"""Commands of desktop programs."""
