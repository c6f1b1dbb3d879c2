"""A coding agent's tools over MCP, with a permission mode that the server enforces."""

__version__ = "0.1.0"
