"""Run prompts and commands at set times."""
