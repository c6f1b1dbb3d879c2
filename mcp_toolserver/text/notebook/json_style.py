"""Detects the formatting of a JSON text, so that inserted values match it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from mcp_toolserver.text.notebook.json_spans import after_space, decoded

_NEEDLESS = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[01])")
"""The escape of a character that could stand there itself."""


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
