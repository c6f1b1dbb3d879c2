"""Edits of text, and why one does not apply."""
