"""HTTP transports and the checks in front of them."""
