"""Edits YAML, as `jsonc` does JSON, by whole lines: the block of a key is inserted, replaced or removed.

Its values are JSON, which YAML contains. The result is parsed and compared with the wanted content before it
is returned, so that a text of another form, such as mappings in braces, is refused.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ruamel.yaml
from pydantic import JsonValue
from ruamel.yaml.error import YAMLError

from mcp_toolserver.text.jsonc import Broken

_RUAMEL: Any = ruamel.yaml
"""Its functions have no types."""
_ITEM = re.compile(r" *-(\s|$)")
_NO_CONTENT = re.compile(r"\s*(#.*)?$")


def parse(text: str) -> dict[str, JsonValue]:
    try:
        content: JsonValue = _RUAMEL.YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = str(getattr(error, "problem", None) or "the text is not YAML")
        raise Broken(what, line=line, column=column) from None
    if content is not None and not isinstance(content, dict):
        raise Broken("the file is not a mapping")
    return content or {}


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """As `jsonc.put`; of a form that this module does not edit, `Broken` has what to write by hand."""
    wanted = parent = parse(text)
    for key in path[:-1]:
        if parent.get(key) is None:
            parent[key] = {}
        found = parent[key]
        if not isinstance(found, dict):
            raise Broken(f"{key} is not a mapping")
        parent = found
    if parent.get(path[-1]) == value:
        return text
    by_hand = f"write {_name(path[-1])}: {json.dumps(value, ensure_ascii=False)}"
    parent[path[-1]] = value
    if value is None:
        by_hand = f"remove {path[-1]}"
        del parent[path[-1]]
    edited = _with_block(text.split("\n"), path, value)
    with suppress(Broken):
        if parse(edited) == wanted:
            return edited
    raise Broken(f"this YAML cannot be edited safely; by hand, in {'.'.join(path[:-1]) or 'it'}, {by_hand}")


def _with_block(lines: list[str], path: Sequence[str], value: JsonValue) -> str:
    """The lines with the block of a value at `path`."""
    outer, content, column, depth = range(-1, len(lines)), list[int](), 0, 0
    for depth, key in enumerate(path):
        content = [at for at in outer[1:] if not _NO_CONTENT.match(lines[at])]
        column = _indent(lines[content[0]]) if content else _indent(lines[outer.start]) + 2 if depth else 0
        name = re.compile(rf" {{{column}}}([\"']?){re.escape(key)}\1:(\s|$)")
        at = next((at for at in content if name.match(lines[at])), None)
        if at is None:
            break
        ends = (end for end in content if end > at and _indent(lines[end]) <= column)
        stop = next((end for end in ends if not _ITEM.match(lines[end])), len(lines))
        inner = range(at, [one for one in content if one < stop][-1] + 1)
        if depth == len(path) - 1:
            lines[at : inner.stop] = [] if value is None else _rendered(key, value, column)
            if value is None and depth and {*content} <= {*inner}:
                lines[outer.start] = re.sub(r":(?=\s|$)", ": {}", lines[outer.start], count=1)
            return "\n".join(lines)
        outer = inner
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    if depth:
        # An empty mapping becomes a block.
        lines[outer.start] = re.sub(r":\s*\{\s*\}", ":", lines[outer.start], count=1)
    if lines[-1]:
        lines.append("")
    place = content[-1] + 1 if content else outer.start + 1 if depth else len(lines) - 1
    lines[place:place] = _rendered(path[depth], value, column)
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _rendered(key: str, value: JsonValue, column: int) -> list[str]:
    """A block; mappings in it are blocks too, everything else is JSON."""
    start = f"{' ' * column}{_name(key)}:"
    if isinstance(value, dict) and value:
        return [start, *(line for name, one in value.items() for line in _rendered(name, one, column + 2))]
    return [f"{start} {json.dumps(value, ensure_ascii=False)}"]


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z][\w-]*", key) else json.dumps(key)
