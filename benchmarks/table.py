"""The table of results as Markdown, and its place in the document."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from benchmarks.figures import Row

START = "<!-- results: written by `python -m benchmarks --write` -->"
END = "<!-- end of results -->"
HEADINGS = ("what", "ours", "other", "compared", "target", "")


def verdict(row: Row) -> str:
    """`holds` or `misses`; nothing where there is no target."""
    return "" if row.holds is None else "holds" if row.holds else "**misses**"


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    cells = [(row.what, row.ours, row.other, row.compared, row.target, verdict(row)) for row in rows]
    return "\n".join(_line(line) for line in [HEADINGS, ("---",) * len(HEADINGS), *cells])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def section(machine: Mapping[str, str], results: Mapping[str, Sequence[Row]]) -> str:
    """All that goes between the marks: what was measured on, then of each benchmark, by name, the first
    figure that has a target and those that miss theirs."""
    facts = [f"{name}: {value}" for name, value in machine.items()]
    shown: list[Row] = []
    for name, rows in results.items():
        judged = [row for row in rows if row.holds is not None]
        shown += (
            replace(row, what=f"`{name}`: {row.what}") for row in judged if row is judged[0] or not row.holds
        )
    return "\n\n".join(["; ".join(facts) + ".", table(shown)])


def renewed(document: str, text: str) -> str:
    """The document with `text` between the marks.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    before, found, rest = document.partition(START)
    _, ended, after = rest.partition(END)
    if not found or not ended or START in rest or END in after:
        raise ValueError(f"the document must hold the lines {START!r} and {END!r} once each, in this order")
    return f"{before}{START}\n\n{text}\n\n{END}{after}"
