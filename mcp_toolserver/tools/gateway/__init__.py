"""Other MCP servers that the operator configured: their tools, their resources and their state."""
