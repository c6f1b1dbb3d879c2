"""Edits YAML: ruamel.yaml says where each value is, and the text is changed there.

Written again by a library, the text would lose its indentation and quotes. What is inserted is a block with
values in JSON, which YAML contains. The parsed result is compared with the wanted one before it is returned.
"""

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import ruamel.yaml
from pydantic import JsonValue
from ruamel.yaml.error import YAMLError

from mcp_toolserver.commands.setup.document import Broken

_BOM = "\ufeff"
_RUAMEL: Any = ruamel.yaml
"""Its nodes have no types."""

_UNSAFE = "this YAML cannot be edited safely; change it by hand"


def parse(text: str) -> JsonValue:
    """Return the content.

    Raises:
        Broken: the text is not YAML.
    """
    _compose(text)
    content: JsonValue = _RUAMEL.YAML(typ="safe", pure=True).load(text.removeprefix(_BOM))
    return {} if content is None else content


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """Return the text with `value` at `path`, in mappings that are created where they are missing.

    Raises:
        Broken: the text is not YAML, something on the way is not a mapping, or the text has a form that this
            module does not edit, such as mappings in braces.
    """
    wanted = deepcopy(parse(text))
    if _at(wanted, path) == value:
        return text
    _set(wanted, path, value)
    if _at(parse(text), path) is None:
        return _checked(_put(text, path, value), wanted)
    span = _span_on_one_line(text, path)
    if span is not None:
        return _checked(text[: span[0]] + json.dumps(value, ensure_ascii=False) + text[span[1] :], wanted)
    return _checked(_put(drop(text, path), path, value), wanted)


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without what is at `path`; unchanged when there is none.

    Raises:
        Broken: as `put`.
    """
    wanted = deepcopy(parse(text))
    parent = _at(wanted, path[:-1])
    if not isinstance(parent, dict) or path[-1] not in parent:
        return text
    del parent[path[-1]]
    return _checked(_drop(text, path), wanted)


# --- nodes -----------------------------------------------------------------------------------------------


def _compose(text: str) -> Any:
    """The root node; None for a text without content."""
    try:
        root: Any = _RUAMEL.YAML(typ="safe", pure=True).compose(text.removeprefix(_BOM))
    except (YAMLError, RecursionError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        what = str(getattr(error, "problem", None) or "the text is not YAML")
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Broken(what, line=line, column=column) from None
    if root is not None and root.id != "mapping":
        raise Broken("the file is not a mapping", line=1, column=1)
    return root


def _child(node: Any, key: str) -> tuple[Any, Any] | None:
    """The nodes of a key and its value."""
    if node is None or node.id != "mapping":
        return None
    pairs: list[tuple[Any, Any]] = node.value
    return next((pair for pair in pairs if pair[0].value == key), None)


def _span_on_one_line(text: str, path: Sequence[str]) -> tuple[int, int] | None:
    """Where a value is, if it is on one line."""
    node, bom = _compose(text), len(text) - len(text.removeprefix(_BOM))
    for key in path:
        found = _child(node, key)
        assert found is not None, "the content was looked up before"
        node = found[1]
    start, end = bom + node.start_mark.index, bom + node.end_mark.index
    return None if "\n" in text[start:end] else (start, end)


def _end(text: str, node: Any) -> int:
    """The position after the line on which a value ends; comments below it are not part of it."""
    while node.id != "scalar" and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if node.id == "mapping" else last
    end: int = node.end_mark.index
    if end and text[end - 1] == "\n":
        return end
    newline = text.find("\n", end)
    return len(text) if newline < 0 else newline + 1


# --- changing --------------------------------------------------------------------------------------------


def _put(text: str, path: Sequence[str], value: JsonValue) -> str:
    bom, text = (_BOM, text.removeprefix(_BOM)) if text.startswith(_BOM) else ("", text)
    newline = "\r\n" if "\r\n" in text else "\n"
    node, column, place, depth = _compose(text), 0, len(text), 0
    while (found := _child(node, path[depth])) is not None:
        key, node = found
        depth += 1
        column = key.start_mark.column + 2
        if node.id != "mapping" or not node.value:
            # An empty mapping becomes a block.
            start = key.end_mark.index + 1
            end = node.end_mark.index if node.end_mark.index > start else start
            text = text[:start] + text[end:]
            place = _line_end(text, start)
            break
    else:
        if node is not None and node.value:
            column, place = node.value[0][0].start_mark.column, _end(text, node)
    for outer in reversed(path[depth + 1 :]):
        value = {outer: value}
    lines = [" " * column + line for line in _rendered(path[depth], value)]
    before = text[:place]
    if before and not before.endswith("\n"):
        before += newline
    return bom + before + "".join(line + newline for line in lines) + text[place:]


def _drop(text: str, path: Sequence[str]) -> str:
    bom, text = (_BOM, text.removeprefix(_BOM)) if text.startswith(_BOM) else ("", text)
    node, outer = _compose(text), None
    for key in path[:-1]:
        found = _child(node, key)
        assert found is not None, "the content was looked up before"
        outer, node = found
    pair = _child(node, path[-1])
    assert pair is not None, "the content was looked up before"
    start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    end = _end(text, pair[1])
    if len(node.value) > 1 or outer is None:
        return bom + text[:start] + text[end:]
    colon = outer.end_mark.index + 1
    return bom + text[:colon] + " {}" + text[colon:start] + text[end:]


def _line_end(text: str, at: int) -> int:
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _rendered(key: str, value: JsonValue) -> list[str]:
    """A block; mappings in it are blocks too, everything else is JSON."""
    if isinstance(value, dict) and value:
        inner = [f"  {line}" for name, one in value.items() for line in _rendered(name, one)]
        return [f"{_name(key)}:", *inner]
    return [f"{_name(key)}: {json.dumps(value, ensure_ascii=False)}"]


def _name(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key[0].isalpha() else json.dumps(key)


def _checked(text: str, wanted: JsonValue) -> str:
    try:
        found = parse(text)
    except Broken:
        found = None
    if found != wanted:
        raise Broken(_UNSAFE, line=1, column=1)
    return text


def _at(content: JsonValue, path: Sequence[str]) -> JsonValue:
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _set(content: JsonValue, path: Sequence[str], value: JsonValue) -> None:
    """Set a value in nested mappings; an empty value on the way counts as an empty mapping."""
    for key in path[:-1]:
        if not isinstance(content, dict):
            raise Broken(f"{key} is not in a mapping", line=1, column=1)
        content[key] = content.get(key) or {}
        content = content[key]
    if not isinstance(content, dict):
        raise Broken(f"{path[-2]} is not a mapping", line=1, column=1)
    content[path[-1]] = value
