"""Agents: their types, conversations and results."""
