"""The client's own model (sampling)."""
