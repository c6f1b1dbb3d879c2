"""Follow and end background commands."""
