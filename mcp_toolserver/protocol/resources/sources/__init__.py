"""The server's own resources, one module for each kind."""
