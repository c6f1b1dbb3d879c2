"""The line on which a hunk begins: `@@ -3,4 +3,5 @@ heading`, or less of it."""

import re
from dataclasses import dataclass

_NUMBERED = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@.*")
_EMPTY = frozenset({"", "...", "…", "@@", "... @@", "… @@"})


@dataclass(frozen=True, kw_only=True)
class Header:
    """The parsed header line."""

    start: int | None = None
    """Lines before the hunk in the old file."""
    old: int | None = None
    """Lines of the hunk in the old file."""
    new: int | None = None
    """Lines of the hunk in the new file."""
    anchor: str | None = None
    """A line of the file that comes before the hunk."""


def header(line: str) -> Header | None:
    """Read the line; None when it is no such line, or that of a merge with several old files."""
    if not line.startswith("@@") or line.startswith("@@@"):
        return None
    if found := _NUMBERED.fullmatch(line):
        start, old, new = (int(number) if number else 1 for number in found.groups())
        return Header(start=start - 1 if old and start else start, old=old, new=new)
    said = line.removeprefix("@@").strip()
    if said in _EMPTY:
        return Header()
    return Header(anchor=line.removeprefix("@@").removeprefix(" ").removesuffix("@@").rstrip())
