"""Extracts the text of an Excel workbook: one line per row, tabs between cells, last computed values."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from importlib import import_module
from io import BytesIO
from typing import Protocol

from mcp_toolserver.text.documents.optional_parser import extra, parser_errors
from mcp_toolserver.text.documents.zip_check import check_package

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
