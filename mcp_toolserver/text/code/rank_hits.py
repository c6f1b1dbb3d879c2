"""Finds a name in the code of files, and ranks the places by definition and nearness."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Literal

from mcp_toolserver.text.code.code_only import code_only
from mcp_toolserver.text.code.languages import Language, definition_pattern
from mcp_toolserver.text.code.positions import code_lines, symbol_at, symbol_start

HitKind = Literal["definitions", "references", "symbols"]
"""Definitions of a name; its occurrences; definitions of names that contain it, in any case."""

_LINE = 1_000
"""Characters of a line that are searched for a definition."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A line that names a symbol in code."""

    path: str
    line: int
    """Line number, from 0."""
    index: int
    """Index of the name in the line, from 0."""
    text: str
    """The line."""
    name: str
    """The whole word at `index`."""
    is_definition: bool


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to find."""

    symbol: str
    kind: HitKind
    language: Language

    @cached_property
    def _definition(self) -> "re.Pattern[str]":
        name = re.escape(self.symbol)
        any_name = self.kind == "symbols"
        pattern = definition_pattern(self.language, rf"\w*{name}\w*" if any_name else name)
        return re.compile(pattern, re.IGNORECASE if any_name else 0)

    def index(self, line: str) -> int | None:
        """Return the index of the name in a line of code; None if it is not there."""
        if self.kind == "symbols":
            return symbol_start(line.lower(), self.symbol.lower())
        return symbol_start(line, self.symbol)

    def is_defined(self, line: str) -> bool:
        """Whether a line of code has the form of a definition of the name."""
        return self._definition.search(line[:_LINE]) is not None


def code_hits(path: str, text: str, numbers: Iterable[int], wanted: Wanted) -> list[Hit]:
    """Return the hits of one file in the lines `numbers`, which count from 1."""
    lines, code = code_lines(text), code_lines(code_only(text, wanted.language))
    hits: list[Hit] = []
    for number in numbers:
        # The file may have fewer lines by now.
        line = code[number - 1] if number <= len(code) else ""
        index, is_defined = wanted.index(line), wanted.is_defined(line)
        if index is not None and (is_defined or wanted.kind == "references"):
            name = symbol_at(line, index)
            hit = Hit(
                path=path,
                line=number - 1,
                index=index,
                text=lines[number - 1],
                name=name,
                is_definition=is_defined,
            )
            hits.append(hit)
    return hits


def ranked(hits: Iterable[Hit], symbol: str, near: str) -> list[Hit]:
    """Sort hits: the exact name before names that contain it, definitions before uses, and each by its
    distance from the path `near`, then by path and line."""
    return sorted(
        hits,
        key=lambda hit: (
            hit.name.lower() != symbol.lower(),
            not hit.is_definition,
            distance(hit.path, near),
            hit.path,
            hit.line,
        ),
    )


def distance(path: str, near: str) -> int:
    """Return how many folders one enters or leaves on the way from the file `near` to `path`; the file itself
    is nearer than its neighbours."""
    if path == near:
        return -1
    one, other = ([part for part in given.split("/")[:-1] if part] for given in (path, near))
    pairs = zip(one, other, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return len(one) + len(other) - 2 * common
