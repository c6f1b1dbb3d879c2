"""A patch over several files, in either form that models write, as one list of sections.

The forms are the unified diff (`patch_unified`), plain or as git makes it, and the envelope
(`patch_envelope`), which starts with `*** Begin Patch`. Sections take effect one after the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mcp_toolserver.errors import InvalidInput

Sign = Literal[" ", "-", "+"]

UNFINISHED = "\\ "
"""Start of the line `\\ No newline at end of file`; git translates the rest."""

MAX_FILES = 100
"""Files of one patch; all are held open at the same time."""

MAX_HUNKS = 1_000


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
        for section in self.sections:
            if section.takes_away:
                _refuse_link(section.path, spelt[section.path], canonical)
        return Patch(sections=tuple(_respelt(section, spelt) for section in self.sections))


def _respelt(section: Section, spelt: dict[str, str]) -> Section:
    to = None if section.to is None else spelt[section.to]
    return replace(section, path=spelt[section.path], to=to)


def _refuse_link(path: str, real: str, canonical: Callable[[str], str]) -> None:
    folder, _, name = path.rpartition("/")
    parent = canonical(folder or ("/" if path.startswith("/") else "."))
    if real != (name if parent == "." else f"{parent.rstrip('/')}/{name}"):
        raise InvalidInput(f"'{path}' leads to '{real}'. Name the file itself to move or delete it.")


def lines_of(text: str) -> list[str]:
    """Split into lines with their line feeds; a carriage return belongs to its line."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def refuse_size(sections: Sequence[Section]) -> None:
    """Raises: ValueError: no sections, or more than can be carried out at once."""
    files = {path for section in sections for path in section.paths}
    if len(files) > MAX_FILES:
        raise ValueError(f"the patch names {len(files)} files; at most {MAX_FILES} can change at once")
    if sum(len(section.hunks) for section in sections) > MAX_HUNKS:
        raise ValueError(f"the patch has more than {MAX_HUNKS} hunks; send it in parts")


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
