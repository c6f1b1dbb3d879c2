"""Extracts the text of a Word document: paragraphs and tables in order, insertions accepted, deletions
omitted.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from typing import BinaryIO, Protocol

from mcp_toolserver.text.documents.optional_parser import extra, parser_errors
from mcp_toolserver.text.documents.zip_check import check_package

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_PARAGRAPH, _TABLE, _ROW, _CELL = (f"{_WORD}{name}" for name in ("p", "tbl", "tr", "tc"))
_STYLE, _NUMBERED, _VALUE = (f"{_WORD}{name}" for name in ("pStyle", "numPr", "val"))
_TEXT = f"{_WORD}t"
_SIGNS = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n", f"{_WORD}noBreakHyphen": "-"}
_SECOND_COPY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
"""The old form of a drawing, next to the same drawing in the new form."""
_PROPERTIES = f"{_WORD}pPr"
_HEADING = "Heading"
_LEVELS = 9


class _Element(Protocol):
    """The part of lxml's element interface that is used."""

    @property
    def tag(self) -> object: ...
    @property
    def text(self) -> str | None: ...
    def get(self, key: str) -> str | None: ...
    def find(self, path: str) -> "_Element | None": ...
    def __iter__(self) -> "Iterator[_Element]": ...


class _Story(Protocol):
    @property
    def body(self) -> _Element: ...


class _Document(Protocol):
    @property
    def element(self) -> _Story: ...


def word(content: bytes) -> str:
    """Return the text of a Word document, a paragraph or a row of a table a line.

    Raises:
        Unavailable: the extra is not installed.
        InvalidInput: it is damaged, or too large.
    """
    opened: Callable[[BinaryIO], _Document] = extra("docx").Document
    own: type[Exception] = import_module("docx.exceptions").PythonDocxError
    with parser_errors("a Word document", own):
        check_package(content)
        return "\n".join(_lines(opened(BytesIO(content)).element.body))


def _lines(parent: _Element) -> Iterator[str]:
    for element in parent:
        if element.tag == _PARAGRAPH:
            yield _mark(element) + _text(element)
        elif element.tag == _TABLE:
            yield from (" | ".join(_cells(row)) for row in _inner(element, _ROW))
        else:
            yield from _lines(element)


def _mark(paragraph: _Element) -> str:
    """Return the Markdown prefix of a heading or list item; empty for other paragraphs."""
    properties = paragraph.find(_PROPERTIES)
    if properties is None:
        return ""
    style = properties.find(_STYLE)
    name = (style.get(_VALUE) if style is not None else None) or ""
    level = name.removeprefix(_HEADING)
    if name.startswith(_HEADING) and level.isdecimal():
        return "#" * min(int(level), _LEVELS) + " "
    return "- " if properties.find(_NUMBERED) is not None else ""


def _cells(row: _Element) -> Iterator[str]:
    for cell in _inner(row, _CELL):
        yield " ".join(line.replace("\n", " ") for line in _lines(cell) if line)


def _inner(parent: _Element, tag: str) -> Iterator[_Element]:
    """Yield the elements with `tag`, also those nested in other elements."""
    for element in parent:
        if element.tag == tag:
            yield element
        else:
            yield from _inner(element, tag)


def _text(parent: _Element) -> str:
    """Return the text of a paragraph, including text boxes."""
    return "".join(_pieces(parent))


def _pieces(parent: _Element) -> Iterator[str]:
    for element in parent:
        if element.tag == _TEXT:
            yield element.text or ""
        elif element.tag in _SIGNS:
            yield _SIGNS[str(element.tag)]
        elif element.tag not in (_SECOND_COPY, _PROPERTIES):
            yield from _pieces(element)
