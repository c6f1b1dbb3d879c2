"""Tests of the gateway to other MCP servers."""
