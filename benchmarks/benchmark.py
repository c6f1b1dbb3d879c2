"""What a benchmark is, and how much work it may put in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Row


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How often and how much."""

    starts: int
    calls: int
    warm_up: int
    rounds: int
    tree_files: int
    big_file: int
    """Bytes."""
    big_output: int
    """Bytes."""


FULL = Effort(
    starts=31,
    calls=500,
    warm_up=100,
    rounds=41,
    tree_files=20_000,
    big_file=1_000_000_000,
    big_output=300_000_000,
)
QUICK = Effort(
    starts=3, calls=50, warm_up=10, rounds=3, tree_files=2_000, big_file=50_000_000, big_output=20_000_000
)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One question, answered by rows of the table."""

    name: str
    title: str
    run: Callable[[Effort, Path], list[Row]]
    """Takes a temporary folder that others use too; what it leaves there is removed at the end."""
