"""Extracts the text of PDF and office files in bounded work, with parsers that are imported on first use.

PDF: page by page, without scripts, links and attachments. Office documents are ZIP archives and may be
decompression bombs. Word: paragraphs and tables in order, insertions accepted, deletions omitted. Excel: one
line per row, tabs between cells, last computed values.
"""

import struct
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from importlib import import_module
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Protocol
from zipfile import BadZipFile, ZipFile

from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.text.documents.documents import Block, Shown, Wanted, blocks, numbered

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from pypdf import PageObject, PdfReader

_FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError),
    *(SyntaxError, TypeError, ValueError, struct.error, BadZipFile, zlib.error),
)
"""A parser that meets a damaged or hostile file may raise any of them, and more of its own."""


@contextmanager
def parser_errors(what: str, *own: type[Exception]) -> Generator[None]:
    """Say that the file is no `what` when its parser fails, also by an error of its `own`.

    Raises:
        InvalidInput: so it is; the text goes on from the name of the file.
    """
    try:
        yield
    except (*_FAILURES, *own):
        raise InvalidInput(
            f"cannot be read as {what}: it is damaged, or something else; use another copy"
        ) from None


def extra(module: str) -> ModuleType:
    """Return a module of the extra `documents`. Raises: Unavailable: it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise Unavailable(
            "needs the extra `documents`, which this server does not have. Its operator can install "
            "mcp-toolserver[documents]"
        ) from None


_STREAM_BYTES = 20_000_000
"""Maximum unpacked bytes of one stream."""
_STREAM_PARTS = 200_000
"""Maximum operators and operands in one stream."""
_WORK = 1_000_000
"""Operators in the pages of one answer; what follows counts for several."""
_WORK_OF_PAGE = 2_000
_WORK_OF_OBJECT = 2_000
"""A picture or a part that is drawn again; the part has to be taken apart each time."""

_LIMITS = {
    "zlib_maximum_output_length": _STREAM_BYTES,
    "lzw_maximum_output_length": _STREAM_BYTES,
    "run_length_maximum_output_length": _STREAM_BYTES,
    "array_based_stream_maximum_output_length": _STREAM_BYTES,
    "stream_decoding_work_maximum_length": _STREAM_BYTES * 4,
    "stream_parsing_work_maximum_count": _STREAM_PARTS,
    "xform_maximum_invocations_per_extraction": 500,
    "zlib_maximum_recovery_input_length": 100_000,
    "jbig2dec_binary": None,
}
"""Limits of pypdf. The last one is a program that it would start."""


class _Enough(BaseException):
    """The work is used up. pypdf goes on after any `Exception` in a part of a page."""


class _Work:
    """The remaining work budget of one call."""

    left = _WORK

    def count(self, operator: object, *_: object) -> None:
        """Count an operator; ends the page when there were too many."""
        self.left -= _WORK_OF_OBJECT if operator == b"Do" else 1
        if self.left < 0:
            raise _Enough


def pages(content: bytes, wanted: Wanted) -> Shown:
    """Return the wanted pages of a PDF.

    Raises:
        Unavailable: the extra is not installed.
        InvalidInput: it is damaged, encrypted, or too complex.
    """
    pypdf = extra("pypdf")
    errors = import_module("pypdf.errors")
    own: tuple[type[Exception], ...] = (errors.PyPdfError, errors.DependencyError)
    with pypdf.apply_configuration(**_LIMITS), parser_errors("a PDF", *own):
        reader: PdfReader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted:
            raise InvalidInput("is encrypted. Ask the user for a copy without encryption")
        found = reader.pages
        work = _Work()

        def make(place: int) -> Block | None:
            if work.left < _WORK_OF_PAGE:
                return None
            return f"[page {place + 1}]\n{_page(found[place], work, own)}", ()

        return blocks(("PDF", "page", 1), len(found), wanted, make)


def _page(page: "PageObject", work: _Work, own: Sequence[type[Exception]]) -> str:
    work.left -= _WORK_OF_PAGE
    try:
        with parser_errors("a page", *own):
            text = page.extract_text(visitor_operand_before=work.count)
    except _Enough:
        return "[this page takes too much work to read]"
    except InvalidInput:
        return "[this page is damaged or too large to read]"
    return numbered(text.rstrip()) if text.strip() else "[no text on this page; it may be a picture]"


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


def sheets(content: bytes) -> str:
    """Return the text of a workbook: its sheets one after the other, each row with its number.

    Raises:
        Unavailable: the extra is not installed.
        InvalidInput: it is damaged, or too large.
    """
    load: Callable[..., ModuleType] = extra("openpyxl").load_workbook
    own: type[Exception] = import_module("openpyxl.utils.exceptions").InvalidFileException
    with parser_errors("an Excel workbook", own):
        check_package(content)
        computed, written = (
            load(BytesIO(content), read_only=True, data_only=data_only, keep_links=False).worksheets
            for data_only in (True, False)
        )
        return "\n".join(_truncated(zip(computed, written, strict=True)))


def _truncated(pairs: Iterator[tuple[_Sheet, _Sheet]]) -> Iterator[str]:
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


def word(content: bytes) -> str:
    """Return the text of a Word document, a paragraph or a row of a table a line.

    Raises:
        Unavailable: the extra is not installed.
        InvalidInput: it is damaged, or too large.
    """
    docx = extra("docx")
    own: type[Exception] = import_module("docx.exceptions").PythonDocxError
    with parser_errors("a Word document", own):
        check_package(content)
        # An element of lxml, which has the interface of the standard library.
        body: Element = docx.Document(BytesIO(content)).element.body
        return "\n".join(_lines(body))


def _lines(parent: "Element") -> Iterator[str]:
    for element in parent:
        if element.tag == _PARAGRAPH:
            yield _mark(element) + "".join(_pieces(element))
        elif element.tag == _TABLE:
            yield from (" | ".join(_cells(row)) for row in _inner(element, _ROW))
        else:
            yield from _lines(element)


def _mark(paragraph: "Element") -> str:
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


def _cells(row: "Element") -> Iterator[str]:
    for cell in _inner(row, _CELL):
        yield " ".join(line.replace("\n", " ") for line in _lines(cell) if line)


def _inner(parent: "Element", tag: str) -> "Iterator[Element]":
    """Yield the elements with `tag`, also those nested in other elements."""
    for element in parent:
        if element.tag == tag:
            yield element
        else:
            yield from _inner(element, tag)


def _pieces(parent: "Element") -> Iterator[str]:
    """Yield the text of a paragraph, including text boxes."""
    for element in parent:
        if element.tag == _TEXT:
            yield element.text or ""
        elif element.tag in _SIGNS:
            yield _SIGNS[element.tag]
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
