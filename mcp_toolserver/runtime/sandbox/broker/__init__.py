"""The process broker and the supervisor of each command."""
