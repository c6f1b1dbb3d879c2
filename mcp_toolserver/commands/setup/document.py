"""What the editors of the configuration formats have in common."""

from collections.abc import Sequence
from typing import Protocol

from pydantic import JsonValue


class Broken(ValueError):
    """A configuration file is not in its format; nothing is changed."""

    def __init__(self, what: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {what}")


class Editor(Protocol):
    """Changes a text at a path and leaves the rest as it is. All functions raise `Broken`."""

    def parse(self, text: str) -> JsonValue:
        """Return the content; that of an empty text is an empty object."""
        ...

    def put(self, text: str, path: Sequence[str], value: JsonValue) -> str:
        """Return the text with `value` at `path`."""
        ...

    def drop(self, text: str, path: Sequence[str]) -> str:
        """Return the text without what is at `path`."""
        ...
