"""Let other agents work, and follow written procedures."""
