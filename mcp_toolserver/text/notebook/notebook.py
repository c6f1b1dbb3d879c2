"""Parses a Jupyter notebook: its cells, and the position of each in the file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Protocol

from pydantic import JsonValue

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.notebook.json_text import Part, after_space, decoded, elements, members

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


class _Violation(Protocol):
    """A violation that nbformat reports."""

    @property
    def validator(self) -> object: ...
    @property
    def relative_path(self) -> Iterable[object]: ...


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """A valid notebook of nbformat 4."""

    text: str
    start: int
    """Position of the outermost object."""
    minor: int
    array: Part
    """The list of cells; its value is empty here."""
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
    cells: list[Part] = []
    arrays: list[Part] = []

    def read(key: str, at: int) -> Part:
        if key != "cells" or text[at : at + 1] != "[":
            return decoded(text, at)
        cells[:], end = elements(text, at)
        arrays[:] = [Part(at, end, None)]
        return Part(at, end, [cell.value for cell in cells])

    start = after_space(text, 0)
    try:
        found, end = members(text, start, read)
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
    return Notebook(text=text, start=start, minor=minor, array=arrays[-1], cells=cells)


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
    iter_validate: Callable[[object], Iterator[_Violation]] = import_module(
        "nbformat.validator"
    ).iter_validate
    for found in islice(iter_validate(notebook), 1):
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
