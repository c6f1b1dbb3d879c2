"""Measurements against other programs, taken side by side: `python -m benchmarks`."""
