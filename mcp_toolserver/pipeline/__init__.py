"""The call pipeline: from a request to its result."""
