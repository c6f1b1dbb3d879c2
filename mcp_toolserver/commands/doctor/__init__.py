"""The `doctor` command."""
