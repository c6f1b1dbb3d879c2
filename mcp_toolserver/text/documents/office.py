"""Extracts the text of office documents, which are ZIP archives and may be decompression bombs.

Word: paragraphs and tables in order, insertions accepted, deletions omitted. Excel: one line per row, tabs
between cells, last computed values.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from importlib import import_module
from io import BytesIO
from typing import BinaryIO, Protocol
from zipfile import ZipFile

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.documents.optional_parser import extra, parser_errors

_CELLS = 300_000
"""Maximum cells and rows read from a workbook."""
_CHARACTERS = 8 * 1024 * 1024
_CELL_CHARACTERS = 32_767
"""Maximum characters of a cell, as in Excel."""


class _Sheet(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def sheet_state(self) -> str: ...
    def reset_dimensions(self) -> None: ...
    def iter_rows(self, *, values_only: bool) -> "Iterator[Sequence[object]]": ...


class _Workbook(Protocol):
    @property
    def worksheets(self) -> "Sequence[_Sheet]": ...


def sheets(content: bytes) -> str:
    """Return the text of a workbook: its sheets one after the other, each row with its number.

    Raises:
        Unavailable: the extra is not installed.
        InvalidInput: it is damaged, or too large.
    """
    load: Callable[..., _Workbook] = extra("openpyxl").load_workbook
    own: type[Exception] = import_module("openpyxl.utils.exceptions").InvalidFileException
    with parser_errors("an Excel workbook", own):
        check_package(content)
        computed, written = (
            load(BytesIO(content), read_only=True, data_only=data_only, keep_links=False).worksheets
            for data_only in (True, False)
        )
        return "\n".join(_truncated(zip(computed, written, strict=True)))


def _truncated(pairs: Iterator[tuple[_Sheet, _Sheet]]) -> Iterator[str]:
    """Yield the lines of all sheets, up to the limit."""
    cells = characters = 0
    for computed, written in pairs:
        hidden = ", hidden" if computed.sheet_state != "visible" else ""
        yield f"[sheet {computed.title!r}{hidden}]"
        for number, row in enumerate(_rows(computed, written), 1):
            cells += len(row) + 1
            line = "\t".join(row).rstrip("\t")
            characters += len(line)
            if cells > _CELLS or characters > _CHARACTERS:
                yield f"[the workbook goes on at row {number}; only so much of it is read]"
                return
            if line:
                yield f"{number}\t{line}"


def _rows(computed: _Sheet, written: _Sheet) -> Iterator[list[str]]:
    """Yield the rows as text. Where nothing was computed yet, a cell shows its formula."""
    for sheet in (computed, written):
        # What a sheet says about its own size would be filled with empty cells.
        sheet.reset_dimensions()
    both = zip(computed.iter_rows(values_only=True), written.iter_rows(values_only=True), strict=True)
    for values, formulas in both:
        yield [_shown(a if a is not None else b) for a, b in zip(values, formulas, strict=True)]


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            text = str(value)[:_CELL_CHARACTERS]
            return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


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


_PARTS = 5_000
_PART_BYTES = 32 * 1024 * 1024
_TOTAL_BYTES = 200 * 1024 * 1024
"""Maximum unpacked bytes. Parsers need several times as much memory."""

_ENTRY = b"PK\x01\x02"
"""Signature of an entry in the central directory."""

_DECLARATIONS = tuple("<!DOCTYPE".encode(codec) for codec in ("ascii", "utf-16-le", "utf-16-be"))
"""No part of an office document may declare a type; entities, which can grow without end, need one."""


def check_package(content: bytes) -> None:
    """Look through an archive before a parser does.

    Raises:
        InvalidInput: it would be too much to unpack, or holds a document type.
        BadZipFile, and others: it is no archive.
    """
    # The archive is counted by a search, because reading its list would already cost memory for each entry.
    if content.count(_ENTRY) > _PARTS:
        raise InvalidInput(
            f"has more than {_PARTS} parts, which is more than is read. Ask the user for a smaller one"
        )
    with ZipFile(BytesIO(content)) as archive:
        parts = archive.infolist()
        sizes = [part.file_size for part in parts]
        if sum(sizes) > _TOTAL_BYTES or max(sizes, default=0) > _PART_BYTES:
            raise InvalidInput(
                f"is too large unpacked: it may have {_TOTAL_BYTES} bytes, and each part {_PART_BYTES}. "
                "Ask the user for a smaller one"
            )
        for part in parts:
            data = archive.read(part)
            if any(declaration in data for declaration in _DECLARATIONS):
                raise InvalidInput("declares a document type, which no office document may; use another copy")
