"""Start-up: builds the server from settings, serves, and shuts down."""
