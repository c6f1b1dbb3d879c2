"""The commands beside `serve`: they print for people and end."""
