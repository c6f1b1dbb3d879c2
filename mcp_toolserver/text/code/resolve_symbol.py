"""Resolves the position in a file that a query refers to.

Definitions are recognized by a few forms for all languages: a keyword before the name, an assignment at the
start of a line, or the head of a function as in C and Java. Comments and strings may look like one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.code import CodeEditQuery, CodeQuery
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.code.positions import symbol_starts

_NAMED_LINES = 5
"""Lines that a message names."""

_QUOTED = re.compile(r"[\"'`#]|//|/\*|^\s*\*")
"""What may begin a comment or string."""


@dataclass(frozen=True)
class AskedPlace:
    """A position in a file: line and character, from 0."""

    line: int
    index: int
    note: str = ""
    """Why this position, where the query fits several; a sentence."""


def asked_place(query: CodeQuery | CodeEditQuery, lines: Sequence[str]) -> AskedPlace:
    """Return the position, in the lines of its file, that `query` asks about.

    Raises:
        InvalidInput: it is not in the file, or not given.
    """
    if query.line is None:
        return _named(query, lines)
    if query.line > len(lines):
        raise InvalidInput(
            f"Line {query.line} is past the end of '{query.path}', which has {len(lines)} lines. Lines count "
            "from 1."
        )
    if query.character is None:
        return _on_line(query, query.line, lines)
    if query.character > (length := len(lines[query.line - 1])) + 1:
        raise InvalidInput(
            f"Character {query.character} is past the end of line {query.line} of '{query.path}', which has "
            f"{length} characters. Characters count from 1; `query` names a symbol on the line instead."
        )
    return AskedPlace(query.line - 1, query.character - 1)


def _on_line(query: CodeQuery | CodeEditQuery, number: int, lines: Sequence[str]) -> AskedPlace:
    symbol = query.symbol
    if not symbol:
        raise InvalidInput(
            f"{query.operation} needs `character` too, or `query`: the symbol that is meant on line {number}."
        )
    if not (starts := symbol_starts(lines[number - 1], symbol)):
        other = [index for index, line in enumerate(lines) if symbol in line]
        more = " and others" * (len(other) > _NAMED_LINES)
        but = f", but on line {_numbers(other[:_NAMED_LINES])}{more}" * bool(other)
        raise InvalidInput(
            f"'{symbol}' is not on line {number} of '{query.path}'{but}. Lines count from 1; without `line`, "
            "it is looked for in the whole file."
        )
    note = (
        f"'{symbol}' occurs {len(starts)} times on line {number}; this is about the first, at character "
        f"{starts[0] + 1}. The others start at character {_numbers(starts[1:])}: give one as `character`."
    )
    return AskedPlace(number - 1, starts[0], note * (len(starts) > 1))


def _named(query: CodeQuery | CodeEditQuery, lines: Sequence[str]) -> AskedPlace:
    """Return the position of the symbol's definition, or else of its first use."""
    symbol = query.symbol
    if not symbol:
        raise InvalidInput(
            f"{query.operation} needs a place: `line` and `character`, or `query`, the name of a symbol in "
            "the file."
        )
    # Other lines need no look, which takes long in a large file.
    of_symbol = (line if symbol in line else "" for line in lines)
    if defined := list(definitions(of_symbol, re.escape(symbol))):
        others = [one.line for one in defined[1 : _NAMED_LINES + 1]]
        note = (
            f"'{symbol}' is defined {len(defined)} times in this file; this is about line "
            f"{defined[0].line + 1}. Give `line` for another, such as {_numbers(others)}."
        )
        return AskedPlace(defined[0].line, defined[0].index, note * bool(others))
    uses = [(number, start) for number, line in enumerate(lines) for start in symbol_starts(line, symbol)]
    if not uses:
        raise InvalidInput(f"'{symbol}' is not in '{query.path}'. grep_search finds it elsewhere.")
    in_code = (use for use in uses if not _QUOTED.search(lines[use[0]], 0, use[1]))
    number, start = next(in_code, uses[0])
    note = f"'{symbol}' is not defined in this file; this is about its first use, on line {number + 1}."
    return AskedPlace(number, start, note)


def _numbers(places: Sequence[int]) -> str:
    return ", ".join(str(place + 1) for place in places)


_NAME = "NAME"
"""Stands for the name in a form."""

_ANY_NAME = r"[A-Za-z_$][\w$]*"

_KEYWORDS = (
    r"class|struct|interface|enum|union|protocol|trait|record|object|module|namespace|mod|type|typealias|"
    r"typedef|data|newtype|func|fun|function|def|defp|defmodule|defmacro|defstruct|fn|sub|proc|macro_rules!|"
    r"#\s*define|let|var|val|const|external|local"
)
_BETWEEN = r"(?:\([^)]*\)\s*|<[^>]*>\s*|(?:rec|mut)\s+)?(?:[\w.:]+[.:])?"
"""Between keyword and name: the receiver of Go, type parameters, the table of a function of Lua."""

_ARGUMENTS = r"\([^;{()]*(?:\([^()]*\)[^;{()]*)*\)"

_FORMS = (
    rf"^\s*(?:[^\s\"'`#/*]+\s+)*(?:{_KEYWORDS})[\s*]+{_BETWEEN}NAME\b",
    r"^\s*typedef\b.*\bNAME\s*;",
    r"^(?:using\s+)?NAME\s*(?::[^=]+)?=(?:[^=]|$)",
    r"^NAME\s+::\s",
    # The block begins on the same line, or, if a type starts the line, perhaps on another.
    rf"^\s*(?:[\w<>\[\],.?@&*:~]+\s+)*[*&]*(?:\w+::)*NAME\s*{_ARGUMENTS}[^;={{]*\{{",
    r"^[A-Za-z_][\w:<>,*&\s]*[\s*&:]NAME\s*\([^;]*$",
)
"""They mean the same to Python and to Rust."""

_STATEMENT = re.compile(
    r"\s*(?:if|elif|else|for|foreach|while|until|switch|match|when|catch|except|with|synchronized|return|"
    r"yield|await|throw|raise|assert|defer|go|new|from|import)\b"
)
"""The start of a line that defines nothing."""

_MOST = 1_000
"""Characters of a line that are looked at."""


@dataclass(frozen=True)
class Definition:
    """A line that seems to define something."""

    name: str
    line: int
    """Line number, from 0."""
    index: int
    """Index of the name in the line, from 0."""


def definition_pattern(name: str) -> str:
    """Return a regex that finds lines that may define what the pattern `name` matches."""
    return "|".join(form.replace(_NAME, name) for form in _FORMS)


def definitions(lines: Iterable[str], name: str = _ANY_NAME) -> Iterator[Definition]:
    """Yield the definitions of what the pattern `name` matches."""
    forms = [re.compile(form.replace(_NAME, f"(?P<name>{name})")) for form in _FORMS]
    for number, line in enumerate(lines):
        hit = next((hit for form in forms if (hit := form.search(line[:_MOST]))), None)
        if hit is not None and not _STATEMENT.match(line):
            yield Definition(hit["name"], number, hit.start("name"))
