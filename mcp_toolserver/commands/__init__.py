"""The CLI commands other than `serve`: they print for people and exit."""
