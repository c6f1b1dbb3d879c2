"""Extracts the text of a PDF page by page, in bounded work. Ignores scripts, links and attachments."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from io import BytesIO
from typing import BinaryIO, Protocol

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.documents.blocks import Block, Kind, Shown, Wanted, blocks, numbered
from mcp_toolserver.text.documents.optional_parser import extra, parser_errors

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


class _Page(Protocol):
    def extract_text(self, *, visitor_operand_before: Callable[..., None]) -> str: ...


class _Reader(Protocol):
    @property
    def is_encrypted(self) -> bool: ...
    @property
    def pages(self) -> "Sequence[_Page]": ...


class _Enough(BaseException):
    """The work is used up. pypdf goes on after any `Exception` in a part of a page."""


class _Work:
    """The remaining work budget of one call."""

    def __init__(self) -> None:
        self.left = _WORK

    def page(self) -> None:
        """Count a page."""
        self.left -= _WORK_OF_PAGE

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
    limited: Callable[..., AbstractContextManager[object]] = pypdf.apply_configuration
    opened: Callable[[BinaryIO], _Reader] = pypdf.PdfReader
    errors = import_module("pypdf.errors")
    own: tuple[type[Exception], ...] = (errors.PyPdfError, errors.DependencyError)
    with limited(**_LIMITS), parser_errors("a PDF", *own):
        reader = opened(BytesIO(content))
        if reader.is_encrypted:
            raise InvalidInput("is encrypted. Ask the user for a copy without encryption")
        found = reader.pages
        work = _Work()

        def make(place: int) -> Block | None:
            if work.left < _WORK_OF_PAGE:
                return None
            return Block(f"[page {place + 1}]\n{_text(found[place], work, own)}")

        return blocks(Kind(document="PDF", part="page", first=1), len(found), wanted, make)


def _text(page: _Page, work: _Work, own: Sequence[type[Exception]]) -> str:
    work.page()
    try:
        with parser_errors("a page", *own):
            text = page.extract_text(visitor_operand_before=work.count)
    except _Enough:
        return "[this page takes too much work to read]"
    except InvalidInput:
        return "[this page is damaged or too large to read]"
    return numbered(text.rstrip()) if text.strip() else "[no text on this page; it may be a picture]"
