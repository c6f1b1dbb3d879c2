"""Runs commands in containers."""
