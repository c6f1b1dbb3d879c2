"""Search with ripgrep."""
