"""Imports third-party parsers on first use and translates their exceptions into ours."""

import struct
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from mcp_toolserver.errors import InvalidInput, Unavailable

PARSERS = {"PDF": "pypdf", "Word (docx)": "docx", "Excel (xlsx)": "openpyxl"}
"""Kind of document → module of its parser."""

_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
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
    """Return a module of the extra `documents`.

    Raises:
        Unavailable: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise Unavailable(
            "needs the extra `documents`, which this server does not have. Its operator can install "
            "mcp-toolserver[documents]"
        ) from None
