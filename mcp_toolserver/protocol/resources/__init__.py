"""Resources, prompts, completions and subscriptions."""
