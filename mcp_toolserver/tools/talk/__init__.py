"""Talk to the human."""
