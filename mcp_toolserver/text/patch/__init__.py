"""Patches: parsing and applying."""
