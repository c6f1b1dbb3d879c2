"""Other MCP servers as a part of this one, by the SDK's client; `gateway` is what they share with `wrap`."""
