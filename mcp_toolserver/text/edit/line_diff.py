"""Computes the lines that differ between two texts, in bounded time."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

_STEPS = 300_000
"""Elementary steps of the search for the shortest difference; a fraction of a second."""


@dataclass(frozen=True)
class Change:
    """Lines `old_start..old_end` became lines `new_start..new_end`; 0-based, end exclusive."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int

    @property
    def size(self) -> int:
        """Lines removed and lines added."""
        return self.old_end - self.old_start + self.new_end - self.new_start


@dataclass(frozen=True)
class _Run:
    """`size` lines from `old` on equal those from `new` on."""

    old: int
    new: int
    size: int


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Return the ranges in which two lists of lines differ, in order; as small as a bounded search finds.

    Where the search would take too long, everything between the first and the last difference is one change.
    """
    start = _common_start(old, new)
    rest = min(len(old), len(new)) - start
    tail = _common_start(old[len(old) - rest :][::-1], new[len(new) - rest :][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    runs = _common_runs(old[start:old_end], new[start:new_end])
    shifted = (_Run(run.old + start, run.new + start, run.size) for run in runs)
    return list(_between(chain(shifted, (_Run(old_end, new_end, 0),)), start))


def _common_start(old: Sequence[str], new: Sequence[str]) -> int:
    pairs = zip(old, new, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def _between(runs: Iterator[_Run], start: int) -> Iterator[Change]:
    old = new = start
    for run in runs:
        if run.old > old or run.new > new:
            yield Change(old, run.old, new, run.new)
        old, new = run.old + run.size, run.new + run.size


def _common_runs(old: Sequence[str], new: Sequence[str]) -> list[_Run]:
    """Return the runs of equal lines, in order. Lines of only one side are removed before the search."""
    numbers = {line: number for number, line in enumerate(set(old) & set(new))}
    old_places = [place for place, line in enumerate(old) if line in numbers]
    new_places = [place for place, line in enumerate(new) if line in numbers]
    paths = _furthest_paths(
        [numbers[old[place]] for place in old_places], [numbers[new[place]] for place in new_places]
    )
    return [
        _Run(old_places[run.old + step], new_places[run.new + step], 1)
        for run in _walked_back(paths, len(old_places), len(new_places))
        for step in range(run.size)
    ]


def _furthest_paths(old: Sequence[int], new: Sequence[int]) -> "list[array[int]]":
    """Run Myers' greedy search; empty if it takes too long.

    Entry `i` of row `d` is how far `d` insertions and deletions reach in `old` on the diagonal `2 * i - d`.
    """
    rows: list[array[int]] = []
    steps = 0
    while True:
        distance, row = len(rows), array("l")
        for index in range(distance + 1):
            start = _step(rows[-1], index, distance) if rows else 0
            end = _slide(old, new, start, start - (2 * index - distance))
            row.append(end)
            steps += end - start + 1
            if steps > _STEPS:
                return []
            if end >= len(old) and end - (2 * index - distance) >= len(new):
                return [*rows, row]
        rows.append(row)


def _step(row: Sequence[int], index: int, distance: int) -> int:
    """Return the start of a path on a diagonal, from the ends of the paths on its neighbours."""
    return row[index] if _comes_by_insertion(row, index, distance) else row[index - 1] + 1


def _comes_by_insertion(row: Sequence[int], index: int, distance: int) -> bool:
    return index == 0 or (index != distance and row[index - 1] < row[index])


def _slide(old: Sequence[int], new: Sequence[int], x: int, y: int) -> int:
    while x < len(old) and y < len(new) and old[x] == new[y]:
        x += 1
        y += 1
    return x


def _walked_back(rows: "list[array[int]]", x: int, y: int) -> list[_Run]:
    runs: list[_Run] = []
    for distance in range(len(rows) - 1, 0, -1):
        index = (x - y + distance) // 2
        inserted = _comes_by_insertion(rows[distance - 1], index, distance)
        start = _step(rows[distance - 1], index, distance)
        begin = start - (x - y)
        runs.append(_Run(start, begin, x - start))
        x, y = (start, begin - 1) if inserted else (start - 1, begin)
    if rows:
        runs.append(_Run(0, 0, x))
    return runs[::-1]
