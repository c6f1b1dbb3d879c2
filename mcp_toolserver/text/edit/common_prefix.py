"""Finds where two texts begin to differ, at the speed of a memory comparison."""

from collections.abc import Callable


def common_start(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    return _longest(min(len(one), len(other)), lambda start, end: one[start:end] == other[start:end])


def common_end(one: str, other: str, *, limit: int) -> int:
    """Return the length of the common suffix of two texts, at most `limit`."""

    def same(start: int, end: int) -> bool:
        return one[len(one) - end : len(one) - start] == other[len(other) - end : len(other) - start]

    return _longest(min(len(one), len(other), limit), same)


def _longest(limit: int, same: Callable[[int, int], bool]) -> int:
    """Find the length by bisection; it compares at most `limit` characters in all."""
    known, end = 0, limit + 1
    while end - known > 1:
        middle = (known + end) // 2
        if same(known, middle):
            known = middle
        else:
            end = middle
    return known
