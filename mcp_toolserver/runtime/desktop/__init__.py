"""Uses the user's desktop through helper programs."""
