"""Positions in a file: converts columns between characters, as people count them, and the units of a language
server; applies text edits; resolves the position that a query refers to.

Definitions are recognized by a few forms for all languages: a keyword before the name, an assignment at the
start of a line, or the head of a function as in C and Java. Comments and strings may look like one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.capabilities.code import CodeEditQuery, CodeQuery
from mcp_toolserver.errors import InvalidInput

Encoding = Literal["utf-8", "utf-16", "utf-32"]
"""The units in which a language server counts along a line."""

_BREAK = re.compile(r"\r\n|\r|\n")
_INDENTED = re.compile(r"\t|(?P<spaces> {2,8})(?=\S)")
_WORD = re.compile(r"[^\W\d][\w$]*|\$[\w$]+")


def code_lines(text: str) -> list[str]:
    """Return the lines of a document, as the Language Server Protocol breaks them."""
    # The common case is worth a look: it takes a twentieth of the time.
    return _BREAK.split(text) if "\r" in text else text.split("\n")


def to_units(line: str, index: int, encoding: Encoding) -> int:
    """Return the number of units before character `index` (from 0) of `line`."""
    if encoding == "utf-32" or line.isascii():
        return index
    codec, width = _UNITS[encoding]
    return len(line[:index].encode(codec, "surrogatepass")) // width


def to_index(line: str, units: int, encoding: Encoding) -> int:
    """Return the index (from 0) of the character after `units`; at most the end of `line`."""
    if encoding == "utf-32" or line.isascii():
        return max(0, min(units, len(line)))
    codec, width = _UNITS[encoding]
    before = line.encode(codec, "surrogatepass")[: max(0, units) * width]
    return len(before.decode(codec, "ignore"))


def symbol_at(line: str, index: int) -> str:
    """Return the name that contains or ends at character `index` (from 0) of `line`; empty if none does."""
    found = (match[0] for match in _WORD.finditer(line) if match.start() <= index <= match.end())
    return next(found, "")


def symbol_starts(line: str, symbol: str) -> list[int]:
    """Return the index of each occurrence of `symbol` in `line` as a whole word; without any, the index of
    the first occurrence in another word."""
    whole = [found.start() for found in re.finditer(rf"(?<![\w$]){re.escape(symbol)}(?![\w$])", line)]
    part = line.find(symbol)
    return whole or [part] * (part >= 0)


def indentation(lines: Iterable[str]) -> tuple[bool, int]:
    """Return whether the lines of a file are indented by tabs, and the spaces of one level or tab; four where
    no line says."""
    found = [match for line in lines if (match := _INDENTED.match(line))]
    widths = [len(match["spaces"]) for match in found if match["spaces"]]
    is_tabs = len(found) > 2 * len(widths)
    return is_tabs, 4 if is_tabs else min(widths, default=4)


_UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2)}
"""Codec, and bytes of a unit."""


Position = tuple[int, int]
"""Line and units of the server's encoding in the line, from 0."""

TextEdit = tuple[Position, Position, str]
"""The start and the end of the text to replace, and the new text."""


class InvalidEdit(ValueError):
    """An edit does not fit the text; the message says why and follows "an edit"."""


def apply_edits(text: str, edits: Iterable[TextEdit], encoding: Encoding) -> str:
    """Return `text` with all edits, whose positions are those in `text`.

    Insertions at one position keep their order and precede a replacement that starts there. As in the
    protocol, a position behind the end of its line is the end of the line.

    Raises:
        InvalidEdit: a position is not in the text or inside a character, or edits overlap.
    """
    lines, starts = code_lines(text), [0, *(found.end() for found in _BREAK.finditer(text))]

    def offset(position: Position) -> int:
        line, units = position
        if (line, units) == (len(lines), 0):
            return len(text)
        if not (0 <= line < len(lines) and units >= 0):
            raise InvalidEdit(f"is at line {line + 1} of a text that has {len(lines)} lines")
        index = to_index(lines[line], units, encoding)
        if index < len(lines[line]) and to_units(lines[line], index, encoding) != units:
            raise InvalidEdit(f"splits a character in line {line + 1}")
        return starts[line] + index

    placed = [(offset(start), offset(end), new) for start, end, new in edits]
    return "".join(_pieces(text, sorted(placed, key=lambda edit: edit[:2])))


def _pieces(text: str, edits: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    done = 0
    for start, end, new in edits:
        if end < start:
            raise InvalidEdit("ends before it starts")
        if start < done:
            raise InvalidEdit("overlaps another one")
        yield text[done:start]
        yield new
        done = end
    yield text[done:]


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


def implementation_pattern(name: str) -> str:
    """Return a regex that finds lines that may define a type on the base of the one that `name` matches."""
    types = r"\b(?:class|enum|extension|interface|object|protocol|record|struct|trait)\b"
    return rf"{types}.*\w.*[^\w\-]{name}\b|\bimpl\b.*\b{name}\b.*\bfor\b"


def definitions(lines: Iterable[str], name: str = _ANY_NAME) -> Iterator[Definition]:
    """Yield the definitions of what the pattern `name` matches."""
    forms = [re.compile(form.replace(_NAME, f"(?P<name>{name})")) for form in _FORMS]
    for number, line in enumerate(lines):
        hit = next((hit for form in forms if (hit := form.search(line[:_MOST]))), None)
        if hit is not None and not _STATEMENT.match(line):
            yield Definition(hit["name"], number, hit.start("name"))
