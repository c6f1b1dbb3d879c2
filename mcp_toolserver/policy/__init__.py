"""Decides on calls by rules, the ceiling and the check for dangerous commands. Pure: no input or output."""
