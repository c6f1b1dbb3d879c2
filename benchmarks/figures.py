"""Measuring in turn, and comparing what was measured. Seconds throughout."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

MILLISECOND = 1e-3


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    ours: str
    other: str = "–"
    compared: str = "–"
    target: str = "–"
    holds: bool | None = None
    """None where there is no target."""


def interleaved(rounds: int, subjects: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each subject measured, one of each in every round, so that a busy moment hits all alike.

    Every second round runs backwards: nobody always goes first.
    """
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    names = list(subjects)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            taken[name].append(subjects[name]())
    return taken


def seconds(action: Callable[[], object]) -> float:
    """How long `action` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def milliseconds(value: float) -> str:
    """A time for the table: three significant digits at least."""
    amount = value / MILLISECOND
    digits = 0 if abs(amount) >= 100 else 1 if abs(amount) >= 10 else 2
    return f"{amount:.{digits}f} ms"


def ratio(
    what: str, ours: list[float], other: list[float], *, factor: float | None = None, plus: float = 0.0
) -> Row:
    """Our median against another: at most `factor` times that, and `plus` seconds more."""
    mine, theirs = median(ours), median(other)
    target = "–" if factor is None else f"≤ {factor:g} ×" + (f" + {plus / MILLISECOND:g} ms" if plus else "")
    return Row(
        what=what,
        ours=milliseconds(mine),
        other=milliseconds(theirs),
        compared=f"{mine / theirs:.2f} ×",
        target=target,
        holds=None if factor is None else mine <= factor * theirs + plus,
    )


def difference(what: str, ours: list[float], other: list[float], *, most: float) -> Row:
    """Our median less another: at most `most` seconds."""
    mine, theirs = median(ours), median(other)
    return Row(
        what=what,
        ours=milliseconds(mine),
        other=milliseconds(theirs),
        compared=f"{'+' if mine >= theirs else '-'} {milliseconds(abs(mine - theirs))}",
        target=f"≤ {most / MILLISECOND:g} ms",
        holds=mine - theirs <= most,
    )


def at_most(what: str, value: float, most: float, show: Callable[[float], str]) -> Row:
    """A figure of ours alone, with the most it may be."""
    return Row(what=what, ours=show(value), target=f"≤ {show(most)}", holds=value <= most)


def left_out(what: str, reason: str) -> Row:
    """A comparison that this machine cannot make."""
    return Row(what=what, ours="–", other=reason)
