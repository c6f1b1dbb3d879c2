"""State that outlives a call, behind unguessable handles."""
