"""Agents: language models that work with the tools of this server."""
