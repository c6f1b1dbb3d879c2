"""Finds out how a file is indented."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_INDENTED = re.compile(r"(?P<tab>\t)|(?P<spaces> {2,8})(?=\S)")

_DEFAULT = 4


@dataclass(frozen=True, kw_only=True)
class Indentation:
    """How one level is indented."""

    is_tabs: bool
    width: int
    """Spaces of one level, or of one tab."""


def indentation(lines: Sequence[str]) -> Indentation:
    """Return the indentation of the lines of a file; four spaces where none is indented."""
    found = [match for line in lines if (match := _INDENTED.match(line))]
    widths = [len(match["spaces"]) for match in found if match["spaces"]]
    is_tabs = len(found) > 2 * len(widths)
    return Indentation(is_tabs=is_tabs, width=_DEFAULT if is_tabs else min(widths, default=_DEFAULT))
