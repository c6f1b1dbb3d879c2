"""Edits TOML, as `jsonc` does JSON, with tomlkit, which keeps comments and the order of keys."""

import tomllib
from collections.abc import MutableMapping, Sequence
from typing import Any

import tomlkit
from pydantic import JsonValue
from tomlkit.container import Container, OutOfOrderTableProxy
from tomlkit.exceptions import ParseError, TOMLKitError
from tomlkit.items import AbstractTable

from mcp_toolserver.text.jsonc import Broken


def parse(text: str) -> dict[str, JsonValue]:
    return _parsed(text).unwrap()


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    document = _parsed(text)
    table: MutableMapping[str, Any] = document
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            if value is None:
                return text
            # A table that holds tables only needs no header of its own.
            super_table = depth + 1 < len(path) - 1 or isinstance(value, dict)
            table[key] = tomlkit.table(is_super_table=super_table)
        inner: object = table[key]
        if not isinstance(inner, (Container, AbstractTable, OutOfOrderTableProxy)):
            raise Broken(f"{'.'.join(path[: depth + 1])} is not a table")
        table = inner
    if value is not None:
        table[path[-1]] = value
    elif path[-1] in table:
        del table[path[-1]]
    return _written(text, document)


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise Broken("the text is not TOML", line=error.line, column=error.col) from None
    except (TOMLKitError, RecursionError):
        raise Broken("the text is not TOML") from None


def _written(before: str, document: tomlkit.TOMLDocument) -> str:
    """The changed text, in which a table is separated from the next one as from the one before.

    tomlkit puts an empty line before an added table, and leaves it when the table is removed.
    """
    if parse(before) == document.unwrap():
        return before
    old, new = before.splitlines(keepends=True), tomlkit.dumps(document).splitlines(keepends=True)
    differs = (at for at, (left, right) in enumerate(zip(old, new, strict=False)) if left != right)
    start, grown = next(differs, min(len(old), len(new))), len(new) - len(old)
    changed = (new if grown > 0 else old)[start : start + abs(grown)]
    if start and changed and not old[start - 1].strip() and changed[-1].strip():
        if grown < 0 and new[start:] == old[start - grown :]:
            del new[start - 1]
        elif grown > 0 and start < len(old):
            new.insert(start + grown, old[start - 1])
    # A text that means something else than intended is never written.
    if _filled(tomllib.loads("".join(new))) != _filled(document.unwrap()):
        raise Broken("this TOML cannot be edited safely; change it by hand")
    return "".join(new)


def _filled(value: JsonValue) -> JsonValue:
    """The value without tables that hold nothing: text has none of them without a header."""
    if not isinstance(value, dict):
        return value
    return {key: filled for key, one in value.items() if (filled := _filled(one)) != {}}
