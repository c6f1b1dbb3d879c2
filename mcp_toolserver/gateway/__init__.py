"""Other MCP servers behind this one's sandbox, rules, pins and audit log; see `gate` for what they share."""
