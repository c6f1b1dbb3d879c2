"""Answers of language servers."""
