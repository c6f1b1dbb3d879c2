"""The only folder that speaks MCP: translation, handlers and transports."""
