"""Skills: finding, reading and activating them."""
