"""Protected names: finding, comparing and quarantining them."""
