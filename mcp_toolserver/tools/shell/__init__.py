"""Run commands."""
