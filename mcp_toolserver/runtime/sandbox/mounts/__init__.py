"""What the sandbox mounts and what it hides."""
