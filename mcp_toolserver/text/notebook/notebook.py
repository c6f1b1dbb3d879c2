"""Parses a Jupyter notebook: its cells, the position of each value in its JSON, and the formatting, so that
one can be replaced or inserted like those around it, and the rest stays unchanged.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice

from pydantic import JsonValue

from mcp_toolserver.errors import InvalidInput

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_NEEDLESS = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[01])")
"""The escape of a character that could stand there itself."""

Splice = tuple[int, int, str]
"""A text in place of what lies from a start to an end."""


@dataclass(frozen=True)
class Part:
    """A value and its place."""

    start: int
    end: int
    value: JsonValue


def after_space(text: str, at: int) -> int:
    """Return the first position from `at` on that is not white space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def decoded(text: str, at: int) -> Part:
    """Decode the value that starts at `at`.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested too deeply.
    """
    value, end = _DECODER.raw_decode(text, at)
    return Part(at, end, value)


def parts(text: str, at: int, brackets: str = "{}") -> tuple[dict[str, Part], int]:
    """Return the members of the object, or the elements of the array, that starts at `at`, and its end.

    An element is named by its number. Of two members with one name, the last counts. Raises: as `decoded`.
    """
    if text[at : at + 1] != brackets[0]:
        raise ValueError(f"{brackets[0]} is missing")
    found: dict[str, Part] = {}
    place = after_space(text, at + 1)
    while text[place : place + 1] != brackets[1]:
        if found:
            if text[place : place + 1] != ",":
                raise ValueError(f", or {brackets[1]} is missing")
            place = after_space(text, place + 1)
        name = str(len(found))
        if brackets == "{}":
            name, place = _name(text, place)
        found[name] = part = decoded(text, place)
        place = after_space(text, part.end)
    return found, place + 1


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the name of the member that starts at `at`, and the place of its value. Raises: as `decoded`."""
    if text[at : at + 1] != '"':
        raise ValueError("a name is missing")
    name = decoded(text, at)
    colon = after_space(text, name.end)
    if text[colon : colon + 1] != ":":
        raise ValueError("a colon is missing")
    return str(name.value), after_space(text, colon + 1)


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """Apply `splices`, which do not overlap, to `text`."""
    pieces: list[str] = []
    place = 0
    for start, end, new in sorted(splices):
        pieces += (text[place:start], new)
        place = end
    return "".join((*pieces, text[place:]))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """White space and escapes of a JSON text."""

    newline: str
    """Empty where everything stands on one line."""
    unit: str
    """Indentation per level."""
    comma: str
    """Between two values on one line."""
    colon: str
    ascii: bool
    """Whether characters beyond ASCII are escaped."""

    def written(self, value: JsonValue, level: int) -> str:
        """Write `value` at nesting `level`; the whole text has level 0."""
        separators = (",", self.colon) if self.newline else (self.comma, self.colon)
        indent = self.unit if self.newline else None
        text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=self.ascii)
        return text.replace("\n", self._line(level))

    def composed(self, members: Iterable[tuple[str, str]], level: int) -> str:
        """Write an object from keys and values that are JSON already."""
        line = self._line(level + 1)
        comma = f",{line}" if self.newline else self.comma
        inside = comma.join(f"{self.written(key, 0)}{self.colon}{value}" for key, value in members)
        return f"{{{line}{inside}{self._line(level)}}}"

    def enclosed(self, item: str, level: int) -> str:
        """Write an array at `level` with one item that is JSON already."""
        return f"[{self._line(level + 1)}{item}{self._line(level)}]"

    def between(self, level: int) -> str:
        """Return the separator between two items of an array at `level`."""
        return f",{self._line(level + 1)}" if self.newline else self.comma

    def _line(self, level: int) -> str:
        return f"{self.newline}{self.unit * level}" if self.newline else ""


def layout(text: str, at: int, level: int) -> Layout:
    """Detect the formatting of the non-empty object at `at`, at nesting `level` of `text`."""
    first = after_space(text, at + 1)
    key = decoded(text, first)
    colon = text[key.end : after_space(text, after_space(text, key.end) + 1)]
    before, newline, indent = text[at + 1 : first].rpartition("\n")
    return Layout(
        newline="\r\n" if before.endswith("\r") else newline,
        unit=indent[: len(indent) // (level + 1)],
        comma=", " if colon.endswith(" ") else ",",
        colon=colon,
        ascii=text.isascii() and "\\u" in text and _NEEDLESS.search(text) is not None,
    )


_MAJOR = 4
_IDS_SINCE = 5
"""The minor version from which every cell has an id."""

_STEPS = 8
_STEP_CHARACTERS = 40
"""Characters of the text around a mistake that the error shows."""

_RULES = {
    "required": "lacks a field that it must have",
    "additionalProperties": "has a field that it must not have",
    "type": "has the wrong type",
}
_OTHER_RULE = "is not as the format wants it"


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """A valid notebook of nbformat 4."""

    text: str
    start: int
    """Position of the outermost object."""
    minor: int
    array: Part
    """The list of cells."""
    cells: Sequence[Part]

    @property
    def has_ids(self) -> bool:
        """Whether this version of the format gives cells ids."""
        return self.minor >= _IDS_SINCE

    def ids(self) -> list[str]:
        """Return the ids of the cells, in order; empty where the format has none."""
        return [str(cell["id"]) for cell in map(fields, self.cells)] if self.has_ids else []


def fields(cell: Part) -> Mapping[str, JsonValue]:
    """Return the fields of a cell."""
    assert isinstance(cell.value, dict)
    return cell.value


def source_of(cell: Mapping[str, JsonValue]) -> str:
    """Return the source of a cell, which is stored as one string or as a list of them."""
    source = cell.get("source")
    if isinstance(source, list):
        return "".join(map(str, source))
    return source if isinstance(source, str) else ""


def parsed(text: str) -> Notebook:
    """Parse the notebook in `text`.

    Raises:
        InvalidInput: it is none, or not a valid one; the text goes on from the name of the file.
    """
    start = after_space(text, 0)
    try:
        found, end = parts(text, start)
    except RecursionError:
        raise InvalidInput("is nested too deeply to be a notebook") from None
    except ValueError:
        raise InvalidInput("is not a notebook: it is not valid JSON; repair it with edit_file") from None
    if after_space(text, end) != len(text):
        raise InvalidInput("is not a notebook: something follows its JSON; remove it with edit_file")
    notebook = {key: part.value for key, part in found.items()}
    minor = _minor(notebook)
    if why := violation(notebook):
        raise InvalidInput(f"is not a valid notebook of nbformat {_MAJOR}.{minor}: {why}")
    array = found["cells"]
    cells, _ = parts(text, array.start, "[]")
    return Notebook(text=text, start=start, minor=minor, array=array, cells=list(cells.values()))


def _minor(notebook: Mapping[str, JsonValue]) -> int:
    major, minor = notebook.get("nbformat"), notebook.get("nbformat_minor")
    newest: object = import_module("nbformat").current_nbformat_minor
    assert isinstance(newest, int)
    if major.__class__ is not int or minor.__class__ is not int:
        raise InvalidInput(
            "is not a notebook: it does not say which nbformat it has; add that with edit_file"
        )
    assert isinstance(minor, int)
    if major != _MAJOR or not 0 <= minor <= newest:
        raise InvalidInput(
            f"has nbformat {major}.{minor}, and only {_MAJOR}.0 to {_MAJOR}.{newest} can be edited; "
            "`jupyter nbconvert --to notebook --inplace` converts it"
        )
    return minor


def violation(notebook: Mapping[str, JsonValue]) -> str | None:
    """Return the first violation of the notebook format, with its position; None if valid."""
    for found in islice(import_module("nbformat.validator").iter_validate(notebook), 1):
        return f"{_place(found.relative_path)} {_RULES.get(str(found.validator), _OTHER_RULE)}"
    cells = notebook.get("cells")
    numbers: dict[JsonValue, int] = {}
    for number, cell in enumerate(cells if isinstance(cells, list) else ()):
        if not isinstance(cell, dict) or "id" not in cell:
            continue
        first = numbers.setdefault(cell["id"], number)
        if first != number:
            return f"cells {first} and {number} have the same id"
    return None


def _place(steps: Iterable[object]) -> str:
    shown = "".join(
        f"[{step}]" if isinstance(step, int) else f".{str(step)[:_STEP_CHARACTERS]}"
        for step in islice(steps, _STEPS)
    )
    return shown.lstrip(".") or "the notebook"
