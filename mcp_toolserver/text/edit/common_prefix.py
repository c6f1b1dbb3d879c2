"""Finds where two texts begin to differ, at the speed of a memory comparison."""

from collections.abc import Sequence


def common_start(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common prefix of two texts, or lists of lines, by bisection."""
    known, end = 0, min(len(one), len(other)) + 1
    while end - known > 1:
        middle = (known + end) // 2
        if one[known:middle] == other[known:middle]:
            known = middle
        else:
            end = middle
    return known
