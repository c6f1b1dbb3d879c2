"""Runs language servers on demand and treats their output as untrusted."""
