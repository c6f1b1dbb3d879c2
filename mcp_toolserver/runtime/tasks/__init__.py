"""Runs the tasks of the board."""
