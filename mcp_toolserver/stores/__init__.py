"""Stores state that outlives a call, behind unguessable handles."""
