"""Plan work, and the small things that planning takes."""
