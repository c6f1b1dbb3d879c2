"""Edits JSON with comments and trailing commas; every byte outside the changed part stays as it is.

Existing Python packages either format the whole text anew or start Node, so this module finds the position
of each value and changes the text there.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from mcp_toolserver.commands.setup.document import Broken

_MAX_DEPTH = 100
_TRIVIA = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*(?s:.*?)\*/)*+")
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*+"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null'
)
_COMMENT = re.compile(r"//[^\r\n]*+|/\*(?s:.*?)\*/")
_BOM = "\ufeff"


@dataclass(frozen=True, kw_only=True)
class _Node:
    """A value with its position in the text."""

    start: int
    end: int
    children: "tuple[_Child, ...] | None" = None
    """Members of an object or elements of an array; None for other values."""
    value: JsonValue = None
    """Of the node and everything in it."""


@dataclass(frozen=True, kw_only=True)
class _Child:
    """A member of an object, or an element of an array, whose key is empty."""

    start: int
    key: str
    node: _Node
    comma: int | None
    """Position of the comma after it."""


def parse(text: str) -> JsonValue:
    """Return the value of the text; a text of spaces and comments is an empty object.

    Raises:
        Broken: the text is not JSON.
    """
    return _root(_with_root(text)).value


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """Return the text with `value` at `path`, in objects that are created where they are missing.

    Raises:
        Broken: the text is not JSON, or something on the way is not an object.
    """
    text = _with_root(text)
    node = _root(text)
    for depth, key in enumerate(path):
        child = _member(text, node, key, path[:depth])
        if child is None:
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return _insert(text, node, key, value)
        node = child.node
    if node.value == value:
        return text
    indent = _indent_of_line(text, node.start)
    return text[: node.start] + _rendered(text, value, indent) + text[node.end :]


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at `path`; unchanged when there is none.

    Raises:
        Broken: as `put`.
    """
    node, index = _root(text), -1
    parent = node
    for depth, key in enumerate(path):
        child = _member(text, node, key, path[:depth])
        if child is None:
            return text
        assert node.children is not None
        parent, index, node = node, node.children.index(child), child.node
    return _without(text, parent, index)


def add_items(text: str, path: Sequence[str], items: Sequence[str]) -> str:
    """Return the text with those of `items` appended to the list at `path` that are not in it.

    Raises:
        Broken: as `put`, or there is something else than a list.
    """
    for item in items:
        node = _list(text, path)
        if node is None:
            text = put(text, path, [item])
        elif not _holds(node, item):
            text = _insert(text, node, None, item)
    return text


def drop_items(text: str, path: Sequence[str], items: Sequence[str]) -> str:
    """Return the text without `items` in the list at `path`.

    Raises:
        Broken: as `add_items`.
    """
    for item in items:
        node = _list(text, path)
        if node is not None and node.children is not None:
            places = [index for index, child in enumerate(node.children) if child.node.value == item]
            for index in reversed(places[-1:]):
                text = _without(text, node, index)
    return text


# --- reading ---------------------------------------------------------------------------------------------


def _with_root(text: str) -> str:
    """The text, with an empty object where it has no value."""
    start = len(_BOM) if text.startswith(_BOM) else 0
    found = _TRIVIA.match(text, start)
    if found is None or found.end() < len(text):
        return text
    line = text and not text.endswith("\n") and text != _BOM
    return f"{text}{_newline(text) if line else ''}{{}}{_newline(text)}"


def _root(text: str) -> _Node:
    start = len(_BOM) if text.startswith(_BOM) else 0
    node = _value(text, _skip(text, start), 0)
    rest = _skip(text, node.end)
    if rest < len(text):
        raise _broken(text, rest, "text after the end of the value")
    return node


def _skip(text: str, at: int) -> int:
    """The position after spaces and comments."""
    found = _TRIVIA.match(text, at)
    return at if found is None else found.end()


def _value(text: str, at: int, depth: int) -> _Node:
    if depth > _MAX_DEPTH:
        raise _broken(text, at, f"more than {_MAX_DEPTH} levels")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, depth)
    found = _SCALAR.match(text, at)
    if found is None:
        raise _broken(text, at, "a value is missing or not JSON")
    return _Node(start=at, end=found.end(), value=_scalar(text, at, found[0]))


def _scalar(text: str, at: int, source: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(source)
    except ValueError:
        raise _broken(text, at, "a value is not JSON") from None
    return value


def _container(text: str, start: int, depth: int) -> _Node:
    is_object = text[start] == "{"
    close = "}" if is_object else "]"
    children: list[_Child] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != close:
        if children and children[-1].comma is None:
            raise _broken(text, at, f"expected a comma or {close}")
        child = _child(text, at, is_object, depth)
        children.append(child)
        at = _skip(text, child.node.end if child.comma is None else child.comma + 1)
    value: JsonValue = [child.node.value for child in children]
    if is_object:
        value = {child.key: child.node.value for child in children}
    return _Node(start=start, end=at + 1, children=tuple(children), value=value)


def _child(text: str, start: int, has_key: bool, depth: int) -> _Child:
    key, at = "", start
    if has_key:
        name = _SCALAR.match(text, start) if text[start : start + 1] == '"' else None
        if name is None:
            raise _broken(text, start, "expected a name in double quotes or }")
        key = str(_scalar(text, start, name[0]))
        at = _skip(text, name.end())
        if text[at : at + 1] != ":":
            raise _broken(text, at, "expected a colon")
        at = _skip(text, at + 1)
    node = _value(text, at, depth + 1)
    after = _skip(text, node.end)
    return _Child(start=start, key=key, node=node, comma=after if text[after : after + 1] == "," else None)


def _broken(text: str, at: int, what: str) -> Broken:
    before = text[:at].removeprefix(_BOM)
    column = len(before) - (before.rfind("\n") + 1) + 1
    return Broken(what, line=before.count("\n") + 1, column=column)


def _member(text: str, node: _Node, key: str, path: Sequence[str]) -> _Child | None:
    if node.children is None or not isinstance(node.value, dict):
        raise _broken(text, node.start, f"{'.'.join(path) or 'the file'} is not an object")
    found = [child for child in node.children if child.key == key]
    if len(found) > 1:
        raise _broken(text, found[1].start, f"{key!r} is there twice")
    return found[0] if found else None


def _list(text: str, path: Sequence[str]) -> _Node | None:
    text = _with_root(text)
    node = _root(text)
    for depth, key in enumerate(path):
        child = _member(text, node, key, path[:depth])
        if child is None:
            return None
        node = child.node
    if not isinstance(node.value, list):
        raise _broken(text, node.start, f"{'.'.join(path)} is not a list")
    return node


def _holds(node: _Node, item: str) -> bool:
    return isinstance(node.value, list) and item in node.value


# --- changing --------------------------------------------------------------------------------------------


def _insert(text: str, node: _Node, key: str | None, value: JsonValue) -> str:
    """Append a member, or an element if `key` is None, to a container."""
    assert node.children is not None
    inner = text[node.start + 1 : node.end - 1]
    on_one_line = bool(inner) and "\n" not in inner
    newline = _newline(text)
    outer = _indent_of_line(text, node.start)
    last = node.children[-1] if node.children else None
    indent = outer + _unit(text)
    if node.children and _starts_line(text, node.children[0].start):
        indent = _indent_of_line(text, node.children[0].start)
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if on_one_line:
        member = f" {name}{json.dumps(value, ensure_ascii=False)}"
    else:
        member = f"{newline}{indent}{name}{_rendered(text, value, indent)}"
    begin = node.start + 1 if last is None else last.node.end if last.comma is None else last.comma + 1
    comment = _last_comment(text, begin, node.end - 1)
    anchor = begin if comment is None else comment.end()
    if last is not None and last.comma is not None:
        member += ","
    rest = text[anchor:]
    if not on_one_line and last is None and "\n" not in text[anchor : node.end - 1]:
        rest = f"{newline}{outer}{rest.lstrip(' ')}"
    comma = "," if last is not None and last.comma is None else ""
    return text[:begin] + comma + text[begin:anchor] + member + rest


def _without(text: str, node: _Node, index: int) -> str:
    """Remove the child at `index`, its comma and the space before it; comments stay."""
    assert node.children is not None
    child = node.children[index]
    before = node.children[index - 1] if index else None
    begin = node.start + 1
    if before is not None:
        begin = before.node.end if before.comma is None else before.comma + 1
    comment = _last_comment(text, begin, child.start)
    begin = begin if comment is None else comment.end()
    line_comment = comment is not None and comment[0].startswith("//")
    cuts = [(child.start, child.node.end)]
    if child.comma is not None:
        cuts.append((child.comma, child.comma + 1))
    elif before is not None and before.comma is not None:
        cuts.insert(0, (before.comma, before.comma + 1))
    end = cuts[-1][1]
    # A comment to the end of the line must not swallow what follows.
    ends_line = re.match(r"[ \t]*+(?:\r?\n|$)", text[end:]) is not None
    cuts.append((child.start if line_comment and not ends_line else begin, child.start))
    result = text
    for start, stop in sorted(cuts, reverse=True):
        result = result[:start] + result[stop:]
    shorter = len(text) - len(result)
    left = result[node.start + 1 : node.end - 1 - shorter]
    if not left.strip() and "\n" in left:
        result = result[: node.start + 1] + result[node.end - 1 - shorter :]
    return result


def _last_comment(text: str, start: int, end: int) -> re.Match[str] | None:
    """The last comment between two tokens."""
    return next(reversed(list(_COMMENT.finditer(text, start, end))), None)


def _rendered(text: str, value: JsonValue, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """One level of indentation, as the first indented line has it; two spaces where there is none."""
    found = re.search(r'\n([ \t]+)["{]', text)
    return found[1] if found else "  "


def _indent_of_line(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _starts_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t")
