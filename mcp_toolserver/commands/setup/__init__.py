"""`setup`: adds this server to MCP clients and removes it."""
