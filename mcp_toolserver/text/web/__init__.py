"""Web addresses and responses."""
