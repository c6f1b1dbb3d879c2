"""Fetches from the web; a guard checks every address."""
