"""Documents and images as text."""
