"""A notebook as a model reads it: cells with number, id, type and source, and what running them gave.

Every line of ours begins with a bracket; a line of a source begins with its number, a line of an output with
a tab. So nothing in a notebook can pass for one of ours.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from pydantic import JsonValue

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.documents.documents import (
    Block,
    Shown,
    Wanted,
    blocks,
    indented,
    numbered,
)
from mcp_toolserver.text.documents.file_type import HEAD_BYTES, Image, image_type
from mcp_toolserver.text.documents.parsers import parser_errors
from mcp_toolserver.text.lines.encoding import detect, head_bytes, tail_bytes
from mcp_toolserver.text.notebook.notebook import source_of, violation

_OUTPUTS = 20
"""Outputs of one cell that are shown."""
_HEAD_BYTES, _TAIL_BYTES = 3_000, 1_000
"""Text of one output that is shown when it is too long: its start, and its end."""
_PICTURES = 8
_PICTURE_BYTES = 4 * 1024 * 1024
"""Pictures in one answer, and what they may have together."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MIME_TYPE = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}", re.ASCII)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TEXTS = ("text/plain", "text/markdown", "text/latex", "application/json", "text/html", "image/svg+xml")
"""MIME types of an output to show, best first."""
_ACTIVE = frozenset({"text/html", "image/svg+xml"})
_TYPES = frozenset({"code", "markdown", "raw"})

Fields = Mapping[str, JsonValue]


def view(content: bytes, wanted: Wanted) -> Shown:
    """Render the wanted cells of a notebook.

    Raises:
        InvalidInput: it cannot be shown as one; the text goes on from "it".
    """
    notebook = _loaded(content)
    cells = _cells(notebook)
    has_ids = notebook.get("nbformat") != 3
    pictures: list[Image] = []

    def make(number: int) -> Block:
        before = len(pictures)
        text = "\n".join(_cell(number, cells[number], pictures, has_ids=has_ids))
        return text, pictures[before:]

    return blocks((_about(notebook), "cell", 0), len(cells), wanted, make)


def _loaded(content: bytes) -> Fields:
    encoding = detect(content)
    if encoding is None:
        raise InvalidInput("is binary")
    try:
        found: JsonValue = json.loads(encoding.decode(content))
    except RecursionError:
        raise InvalidInput("is nested too deeply") from None
    except ValueError:
        raise InvalidInput("is not valid JSON") from None
    if not isinstance(found, dict) or found.get("nbformat") not in (3, 4):
        raise InvalidInput("does not have nbformat 3 or 4")
    return found


def _cells(notebook: Fields) -> Sequence[Fields]:
    found = _upgraded(notebook) if notebook["nbformat"] == 3 else notebook
    cells = found.get("cells")
    if not isinstance(cells, list):
        raise InvalidInput("has no list of cells")
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _upgraded(notebook: Fields) -> Fields:
    if why := violation(notebook):
        raise InvalidInput(f"is not valid: {why}")
    joined: Callable[[Fields], Fields] = import_module("nbformat.v3").to_notebook_json
    convert: Callable[[Fields, int], Fields] = import_module("nbformat").convert
    failure: type[Exception] = import_module("nbformat").ValidationError
    with parser_errors("a notebook of nbformat 3", failure):
        return convert(joined(notebook), 4)


def _about(notebook: Fields) -> str:
    minor, metadata = notebook.get("nbformat_minor"), _mapping(notebook.get("metadata"))
    about = f"notebook, nbformat {notebook['nbformat']}{f'.{minor}' * (minor.__class__ is int)}"
    for place, key in (("kernelspec", "language"), ("language_info", "name")):
        name = _mapping(metadata.get(place)).get(key)
        if isinstance(name, str) and _ID.fullmatch(name):
            return f"{about}, {name}"
    return about


def _mapping(value: JsonValue) -> Fields:
    return value if isinstance(value, dict) else {}


def _cell(number: int, cell: Fields, pictures: list[Image], *, has_ids: bool) -> list[str]:
    kind, name, run = cell.get("cell_type"), cell.get("id"), cell.get("execution_count")
    parts = [f"cell {number}", str(kind) if kind in _TYPES else "of unknown type"]
    if has_ids and isinstance(name, str) and _ID.fullmatch(name):
        parts.append(f"id={name}")
    if run.__class__ is int:
        parts.append(f"run={run}")
    lines = [f"[{' '.join(parts)}]"]
    if source := source_of(cell):
        lines.append(numbered(source))
    outputs = cell.get("outputs")
    found = outputs if isinstance(outputs, list) else []
    for output in found[:_OUTPUTS]:
        lines += _output(_mapping(output), pictures)
    if len(found) > _OUTPUTS:
        lines.append(f"[{len(found) - _OUTPUTS} more outputs are left out; grep_search finds them]")
    return lines


def _output(output: Fields, pictures: list[Image]) -> list[str]:
    match output.get("output_type"):
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            return [f"[output {name}]", *_truncated(_joined(output.get("text")))]
        case "error":
            return ["[output error]", *_truncated(_failure(output))]
        case _:
            return _rich(_mapping(output.get("data")), pictures)


def _failure(output: Fields) -> str:
    traceback = output.get("traceback")
    lines = [str(line) for line in traceback] if isinstance(traceback, list) else []
    return "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}"


def _rich(data: Fields, pictures: list[Image]) -> list[str]:
    """Render an output with several forms: its picture, or else the plainest text."""
    for mime_type, value in data.items():
        if (picture := _picture(mime_type, value)) is not None:
            return [f"[output {picture.mime_type}, {_taken(picture, pictures)}]"]
    chosen = next((mime_type for mime_type in _TEXTS if mime_type in data), None)
    others = [mime_type for mime_type in data if mime_type != chosen and _MIME_TYPE.fullmatch(mime_type)]
    also = f", also there as {', '.join(others[:_OUTPUTS])}" if others else ""
    if chosen is None:
        return [f"[output that has no text{also}]"]
    label = ", untrusted, shown as text" if chosen in _ACTIVE else ""
    value = data[chosen]
    text = json.dumps(value, ensure_ascii=False) if chosen == "application/json" else _joined(value)
    return [f"[output {chosen}{label}{also}]", *_truncated(text)]


def _taken(picture: Image, pictures: list[Image]) -> str:
    """Add a picture to those of the answer if there is room; says what became of it."""
    size, room = len(picture.data), _PICTURE_BYTES - sum(len(one.data) for one in pictures)
    if len(pictures) == _PICTURES or size > room:
        most = f"{_PICTURES} images of {_PICTURE_BYTES} bytes together"
        return f"{size} bytes, left out; an answer holds at most {most}"
    pictures.append(picture)
    return f"{size} bytes, image {len(pictures)} of this answer"


def _picture(mime_type: str, value: JsonValue) -> Image | None:
    if not mime_type.startswith("image/") or mime_type in _TEXTS:
        return None
    try:
        data = base64.b64decode(_joined(value))
    except ValueError:
        return None
    found = image_type(data[:HEAD_BYTES])
    return None if found is None else Image(data=data, mime_type=found)


def _joined(value: JsonValue) -> str:
    """Return text that is stored as one string or as a list of them; anything else as JSON."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _truncated(text: str) -> list[str]:
    """Return the lines of an output, without colour codes and up to the limit."""
    plain = _COLOURS.sub("", text).removesuffix("\n")
    head = head_bytes(plain, _HEAD_BYTES + _TAIL_BYTES)
    if not plain or len(head) == len(plain):
        return [indented(plain)] if plain else []
    head, tail = head_bytes(plain, _HEAD_BYTES), tail_bytes(plain, _TAIL_BYTES)
    return [
        indented(head),
        f"[{len(plain) - len(head) - len(tail)} characters of it are left out; grep_search finds them]",
        indented(tail),
    ]
