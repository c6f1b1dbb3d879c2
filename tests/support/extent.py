"""How much of a long test is done: `python -m tests long` does all of it, the gate a part."""

import os

from hypothesis import settings

VARIABLE = "TESTS_IN_FULL"
"""Set for the long step. A server would refuse a name of its own that it does not know."""


IN_FULL = VARIABLE in os.environ


def rounds(short: int, full: int) -> int:
    """`full` in the long step, else `short`. The test is marked `rounds`, by which that step finds it."""
    return full if IN_FULL else short


def examples(short: int) -> settings:
    """How many random examples a test tries: `short`, in the long step as many as hypothesis does."""
    return settings(max_examples=rounds(short, 100))
