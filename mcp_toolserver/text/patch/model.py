"""A patch over several files, in either form that models write, as one list of sections.

The forms are the unified diff, plain or as git makes it, and the envelope, which starts with
`*** Begin Patch`. Sections take effect one after the other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from mcp_toolserver.errors import InvalidInput

Sign = Literal[" ", "-", "+"]

UNFINISHED = "\\ "
"""Start of the line `\\ No newline at end of file`; git translates the rest."""

_NUMBERED = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@.*")
_EMPTY = frozenset({"", "...", "…", "@@", "... @@", "… @@"})


@dataclass(frozen=True)
class Line:
    """A line of a hunk: context, removed or added."""

    sign: Sign
    text: str
    """With its line feed, unless the patch says that the file has none there."""


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """Lines that follow one another in a file, some of them to change."""

    number: int
    """From 1 in its section."""
    where: int
    """The line of the patch on which it begins."""
    lines: tuple[Line, ...]
    start: int | None = None
    """Lines of the old file before it, as the patch says; None when it does not."""
    anchors: tuple[str, ...] = ()
    """Lines of the file that come somewhere before it, in order."""
    at_end: bool = False
    """Whether its last line must be the last of the file."""
    miscounted: bool = False
    """Whether its header counts other numbers of lines than follow it."""

    def __post_init__(self) -> None:
        if all(line.sign == " " for line in self.lines):
            raise ValueError(
                f"the hunk on line {self.where} of the patch changes nothing: no line has '-' or '+'"
            )

    @property
    def old(self) -> tuple[str, ...]:
        """The lines that the file must have."""
        return tuple(line.text for line in self.lines if line.sign != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """The lines that the file has afterwards."""
        return tuple(line.text for line in self.lines if line.sign != "-")


Action = Literal["create", "delete", "update", "copy"]


@dataclass(frozen=True, kw_only=True)
class Section:
    """The change of one file."""

    action: Action
    path: str
    to: str | None = None
    """Target of a move or copy."""
    hunks: tuple[Hunk, ...] = ()
    executable: bool | None = None
    """Whether the file becomes executable; None: unchanged."""
    where: int
    """The line of the patch on which it begins."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that it names."""
        return (self.path,) if self.to is None else (self.path, self.to)

    @property
    def takes_away(self) -> bool:
        """Whether it removes the file at `path`."""
        return self.action == "delete" or (self.action == "update" and self.to not in (None, self.path))


@dataclass(frozen=True, kw_only=True)
class Patch:
    """All sections, in order."""

    sections: tuple[Section, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that is named, each spelling once."""
        return tuple(dict.fromkeys(path for section in self.sections for path in section.paths))

    def respelt(self, canonical: Callable[[str], str]) -> "Patch":
        """Return this patch with every path in canonical spelling.

        Raises:
            InvalidInput: a file that is to go away is named by a link, so that either may be meant.
        """
        spelt = {path: canonical(path) for path in self.paths}
        for section in (one for one in self.sections if one.takes_away):
            folder, slash, name = section.path.rpartition("/")
            parent = canonical(folder or slash or ".")
            real = spelt[section.path]
            if real != (name if parent == "." else f"{parent.rstrip('/')}/{name}"):
                raise InvalidInput(
                    f"'{section.path}' leads to '{real}'. Name the file itself to move or delete it."
                )
        return Patch(
            sections=tuple(
                replace(section, path=spelt[section.path], to=section.to and spelt[section.to])
                for section in self.sections
            )
        )


def lines_of(text: str) -> list[str]:
    """Split into lines with their line feeds; a carriage return belongs to its line."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


class Source:
    """The lines of a patch, read from the start."""

    def __init__(self, text: str) -> None:
        self._lines = [line.removesuffix("\n") for line in lines_of(text)]
        self._place = 0

    @property
    def number(self) -> int:
        """Number of the next line, from 1."""
        return self._place + 1

    def peek(self, offset: int = 0) -> str | None:
        """Return the line `offset` lines ahead, without a final carriage return; None after the last line."""
        raw = self.raw(offset)
        return None if raw is None else raw.removesuffix("\r")

    def raw(self, offset: int = 0) -> str | None:
        """Return the line `offset` lines ahead unchanged; None after the last line."""
        place = self._place + offset
        return self._lines[place] if place < len(self._lines) else None

    def skip(self, count: int = 1) -> None:
        """Skip `count` lines."""
        self._place += count

    def taken(self) -> str:
        """Return the next line, without a final carriage return, and skip it."""
        line = self.peek()
        self.skip()
        return line or ""

    def header(self) -> "Header | None":
        """Return the header of a hunk that is the next line, and skip it; None if it is something else."""
        found = header(self.peek() or "")
        self.skip(found is not None)
        return found

    def body(self, ends: Callable[[], bool]) -> list[Line]:
        """Read lines of a hunk, up to one that is none or where it `ends`, without the empty last ones."""
        lines: list[Line] = []
        blank = 0
        while (raw := self.raw()) is not None and not ends():
            if (line := body_line(raw)) is not None:
                lines.append(line)
                blank = 0 if raw.strip("\r") else blank + 1
            elif raw.startswith(UNFINISHED):
                without_line_feed(lines)
            else:
                break
            self.skip()
        return lines[: len(lines) - blank]


def body_line(raw: str) -> Line | None:
    """Parse a line of a hunk; None for other lines. An empty one is context whose space an editor removed."""
    if not raw.strip("\r"):
        return Line(" ", f"{raw}\n")
    sign = raw[0]
    if sign == " " or sign == "-" or sign == "+":
        return Line(sign, f"{raw[1:]}\n")
    return None


def without_line_feed(lines: list[Line]) -> None:
    """Take the line feed from the last line, as a `\\ No newline at end of file` after it says."""
    if lines:
        lines[-1] = Line(lines[-1].sign, lines[-1].text.removesuffix("\n"))


@dataclass(frozen=True, kw_only=True)
class Header:
    """The line on which a hunk begins: `@@ -3,4 +3,5 @@ heading`, or less of it."""

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
