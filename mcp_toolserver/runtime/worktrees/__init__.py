"""Linked work trees of git repositories."""
