"""The tests; `python -m tests` is the whole gate."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
