"""Git: read-only commands and clones."""
