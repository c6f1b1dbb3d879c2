"""Edits TOML with tomlkit, which keeps comments and the order of keys."""

import tomllib
from collections.abc import MutableMapping, Sequence
from typing import Any

import tomlkit
from pydantic import JsonValue
from tomlkit.container import Container, OutOfOrderTableProxy
from tomlkit.exceptions import ParseError, TOMLKitError
from tomlkit.items import AbstractTable, Item

from mcp_toolserver.commands.setup.document import Broken

_BOM = "\ufeff"

_Map = MutableMapping[str, Any]


def parse(text: str) -> JsonValue:
    """Return the content.

    Raises:
        Broken: the text is not TOML.
    """
    content: JsonValue = _parsed(text).unwrap()
    return content


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """Return the text with `value` at `path`, in tables that are created where they are missing.

    Raises:
        Broken: the text is not TOML, or something on the way is not a table.
    """
    document = _parsed(text)
    table: _Map = document
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            # A table that holds tables only needs no header of its own.
            super_table = depth + 1 < len(path) - 1 or isinstance(value, dict)
            table[key] = tomlkit.table(is_super_table=super_table)
        table = _table(table[key], path[: depth + 1])
    if path[-1] in table and _plain(table[path[-1]]) == value:
        return text
    table[path[-1]] = value
    return _with_empty_line(text, _written(document, text))


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without what is at `path`; unchanged when there is none.

    Raises:
        Broken: as `put`.
    """
    document = _parsed(text)
    table: _Map = document
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            return text
        table = _table(table[key], path[: depth + 1])
    if path[-1] not in table:
        return text
    del table[path[-1]]
    return _without_empty_line(text, _written(document, text))


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text.removeprefix(_BOM))
    except ParseError as error:
        raise Broken("the text is not TOML", line=error.line, column=error.col) from None
    except (TOMLKitError, RecursionError):
        raise Broken("the text is not TOML", line=1, column=1) from None


def _table(found: object, path: Sequence[str]) -> _Map:
    if not isinstance(found, (Container, AbstractTable, OutOfOrderTableProxy)):
        raise Broken(f"{'.'.join(path)} is not a table", line=1, column=1)
    return found


def _plain(found: object) -> object:
    return found.unwrap() if isinstance(found, (Item, Container, OutOfOrderTableProxy)) else found


def _written(document: tomlkit.TOMLDocument, before: str) -> str:
    text = tomlkit.dumps(document)
    if "\r\n" in before:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    # A text that means something else than intended is never written.
    if _filled(tomllib.loads(text)) != _filled(document.unwrap()):
        raise Broken("this TOML cannot be edited safely; change it by hand", line=1, column=1)
    return (_BOM if before.startswith(_BOM) else "") + text


def _with_empty_line(before: str, after: str) -> str:
    """Separate an added table from the next one as it is separated from the one before."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = _same_lines(old, new)
    end = start + len(new) - len(old)
    if 0 < start < len(old) and new[start:end] and not new[start - 1].strip() and new[end - 1].strip():
        new.insert(end, new[start - 1])
    return "".join(new)


def _without_empty_line(before: str, after: str) -> str:
    """Remove the empty line that tomlkit puts before an added table, when that table is removed."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = _same_lines(old, new)
    removed = old[start : start + len(old) - len(new)]
    if start and removed and not new[start - 1].strip() and removed[-1].strip():
        del new[start - 1]
    return "".join(new)


def _same_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines at the start are the same."""
    differs = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))


def _filled(value: JsonValue) -> JsonValue:
    """The value without tables that hold nothing: text has none of them without a header."""
    if not isinstance(value, dict):
        return value
    return {key: filled for key, one in value.items() if (filled := _filled(one)) != {}}
