"""Resolves the position in a file that a query refers to."""

from mcp_toolserver.capabilities.code import CodeQuery
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.code.languages import outline, searched_language
from mcp_toolserver.text.code.positions import symbol_start

Position = tuple[int, int]
"""Line and character, from 0."""


def asked_place(query: CodeQuery, lines: list[str]) -> Position:
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
    line = lines[query.line - 1]
    if query.character is None:
        return query.line - 1, _on_line(query, line)
    if query.character > len(line) + 1:
        raise InvalidInput(
            f"Character {query.character} is past the end of line {query.line} of '{query.path}', which has "
            f"{len(line)} characters. Characters count from 1; `query` names a symbol on the line instead."
        )
    return query.line - 1, query.character - 1


def _on_line(query: CodeQuery, line: str) -> int:
    if not query.symbol:
        raise InvalidInput(
            f"{query.operation} needs `character` too, or `query`: the symbol that is meant on line "
            f"{query.line}."
        )
    if (start := symbol_start(line, query.symbol)) is None:
        raise InvalidInput(
            f"'{query.symbol}' is not on line {query.line} of '{query.path}'. Lines count from 1; "
            "without `line`, it is looked for in the whole file."
        )
    return start


def _named(query: CodeQuery, lines: list[str]) -> Position:
    """Return the position of the symbol's definition, or else of its first occurrence."""
    if not query.symbol:
        raise InvalidInput(
            f"{query.operation} needs a place: `line` and `character`, or `query`, the name of a symbol in "
            "the file."
        )
    for found in outline(lines, searched_language(query.path)):
        if found.name == query.symbol:
            return found.line, found.index
    for number, line in enumerate(lines):
        if (start := symbol_start(line, query.symbol)) is not None:
            return number, start
    raise InvalidInput(f"'{query.symbol}' is not in '{query.path}'. grep_search finds it elsewhere.")
