"""Edits JSON with comments and trailing commas; every byte outside the changed part stays as it is.

Existing Python packages either format the whole text anew or start Node. Here the standard library checks and
parses the text, with spaces in place of comments and trailing commas; its tokens say where each value is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The command line is read with this, before anything else is imported.
    from pydantic import JsonValue

_COMMENT = re.compile(r"//[^\r\n]*+|/\*(?s:.*?)\*/")
_TOKEN = re.compile(
    rf"({_COMMENT.pattern}|,(?=(?:\s|{_COMMENT.pattern})*+[}}\]]))"
    r'|"(?:[^"\\\x00-\x1f]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"/]++|\S'
)
"""Its group holds what JSON does not have: comments and trailing commas."""
_LINE_END = re.compile(r"[ \t]*+(?:\r?\n|$)")


class Broken(ValueError):
    """A configuration file is not in its format; nothing is changed."""

    def __init__(self, what: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {what}")


@dataclass(kw_only=True)
class _Node:
    """A value with its position in the text."""

    member: int
    """Where its member of an object begins; `start` for the root and elements of arrays."""
    key: str
    """The name of the member, as JSON."""
    start: int
    end: int
    comma: int | None = None
    """Position of the comma after it."""
    children: list[_Node] = field(default_factory=list["_Node"])

    @property
    def after(self) -> int:
        return self.end if self.comma is None else self.comma + 1


def parse(text: str) -> JsonValue:
    """Its value; a text of spaces and comments is an empty object. Raises: Broken: it is not JSON."""
    value: JsonValue = json.loads(_read(text)[1])
    return value


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """Return the text with `value` at `path`, in objects that are created where they are missing; without
    the member at `path` if `value` is None. Where a list has items more or less than the one in the text,
    the others stay.

    Raises:
        Broken: the text is not JSON, or something on the way is not an object.
    """
    text, plain, root = _read(given := text)
    nodes = _nodes(text, root, path)
    if value is None:
        is_there = len(nodes) > len(path)
        return _without(text, nodes[-2], nodes[-2].children.index(nodes[-1])) if is_there else given
    if missing := path[len(nodes) - 1 :]:
        for outer in reversed(missing[1:]):
            value = {outer: value}
        return _insert(text, nodes[-1], f"{json.dumps(missing[0], ensure_ascii=False)}: ", value)
    node = nodes[-1]
    old: JsonValue = json.loads(plain[node.start : node.end])
    if old == value:
        return text
    if isinstance(old, list) and isinstance(value, list):
        if len(old) < len(value) and old == value[: len(old)]:
            return put(_insert(text, node, "", value[len(old)]), path, value)
        if len(old) > len(value):
            same = (at for at, item in enumerate(value) if item != old[at])
            return put(_without(text, node, next(same, len(value))), path, value)
    return text[: node.start] + _rendered(text, value, _indent_of_line(text, node.start)) + text[node.end :]


def _read(text: str) -> tuple[str, str, _Node]:
    """The text, with an empty object where it has no value; as JSON of the same length; and its root."""
    tokens = [token for token in _TOKEN.finditer(text) if token[1] in (None, ",")]
    if not tokens:
        return _read(text + ("\n" if text and not text.endswith("\n") else "") + "{}\n")
    depth, before = 0, "["
    for token in tokens:
        depth += (token[0] in "{[") - (token[0] in "}]")
        if depth > 100:
            raise _broken(text, token.start(), "more than 100 levels")
        if token[0] in ("NaN", "Infinity", "-Infinity") or (token[1] and before in "{[,:"):
            raise _broken(text, token.start(), "a value is missing or not JSON")
        before = token[0]
    plain = _TOKEN.sub(lambda token: re.sub(r"\S", " ", token[0]) if token[1] else token[0], text)
    try:
        json.loads(plain)
    except ValueError as error:
        # A number of thousands of digits has no position.
        raise _broken(text, getattr(error, "pos", 0), getattr(error, "msg", str(error))) from None
    return text, plain, _tree(tokens)


def _tree(tokens: Sequence[re.Match[str]]) -> _Node:
    """The root of a text that is JSON."""
    holder = _Node(member=0, key="", start=0, end=0)
    open_nodes, name = [holder], None
    for token in tokens:
        siblings = open_nodes[-1].children
        if token[0] in "}]":
            open_nodes.pop().end = token.end()
        elif token[0] == ",":
            siblings[-1].comma = token.start()
        elif token[0] == ":":
            name = siblings.pop()
        else:
            # A text before a colon turns out to be a name.
            member, key = (name.start, name.key) if name else (token.start(), token[0])
            siblings.append(_Node(member=member, key=key, start=token.start(), end=token.end()))
            name = None
            if token[0] in "{[":
                open_nodes.append(siblings[-1])
    return holder.children[0]


def _nodes(text: str, root: _Node, path: Sequence[str]) -> list[_Node]:
    """The root and, as far as they are there, the nodes on the way to `path`."""
    nodes = [root]
    for key in path:
        if text[nodes[-1].start] != "{":
            place = ".".join(path[: len(nodes) - 1]) or "the file"
            raise _broken(text, nodes[-1].start, f"{place} is not an object")
        found = [child for child in nodes[-1].children if json.loads(child.key) == key]
        if len(found) > 1:
            raise _broken(text, found[1].member, f"{key!r} is there twice")
        if not found:
            break
        nodes += found
    return nodes


def _broken(text: str, at: int, what: str) -> Broken:
    return Broken(what, line=text.count("\n", 0, at) + 1, column=at - text.rfind("\n", 0, at))


def _insert(text: str, node: _Node, name: str, value: JsonValue) -> str:
    """Append a member, or an element if `name` is empty, to a container."""
    last = node.children[-1] if node.children else None
    begin = last.after if last else node.start + 1
    comment = _last_comment(text, begin, node.end - 1)
    anchor = begin if comment is None else comment.end()
    rest = text[anchor:]
    inner = text[node.start + 1 : node.end - 1]
    if inner and "\n" not in inner:
        added = f" {name}{json.dumps(value, ensure_ascii=False)}"
    else:
        outer = _indent_of_line(text, node.start)
        first = _line_before(text, node.children[0].member) if last else "none"
        indent = outer + _unit(text) if first.strip(" \t") else first
        added = f"\n{indent}{name}{_rendered(text, value, indent)}"
        if last is None and "\n" not in text[anchor : node.end - 1]:
            rest = f"\n{outer}{rest.lstrip(' ')}"
    comma = "," if last is not None and last.comma is None else ""
    return text[:begin] + comma + text[begin:anchor] + added + ("," if last and not comma else "") + rest


def _without(text: str, node: _Node, index: int) -> str:
    """Remove the child at `index`, its comma and the space before it; comments stay."""
    child, before = node.children[index], node.children[index - 1] if index else None
    cuts = [(child.member, child.end)]
    comma = child.comma or (before and before.comma)
    if comma is not None:
        cuts.append((comma, comma + 1))
    begin = before.after if before else node.start + 1
    comment = _last_comment(text, begin, child.member)
    # A comment to the end of the line must not swallow what follows.
    if comment is None or comment[0][1] == "*" or _LINE_END.match(text, child.after):
        cuts.append((begin if comment is None else comment.end(), child.member))
    result = text
    for start, stop in sorted(cuts, reverse=True):
        result = result[:start] + result[stop:]
    end = node.end - 1 - len(text) + len(result)
    left = result[node.start + 1 : end]
    return result[: node.start + 1] + result[end:] if "\n" in left and not left.strip() else result


def _last_comment(text: str, start: int, end: int) -> re.Match[str] | None:
    return next(reversed(list(_COMMENT.finditer(text, start, end))), None)


def _rendered(text: str, value: JsonValue, indent: str) -> str:
    return json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", f"\n{indent}")


def _unit(text: str) -> str:
    """One level of indentation, as the first indented line has it; two spaces where there is none."""
    found = re.search(r'\n([ \t]+)["{]', text)
    return found[1] if found else "  "


def _indent_of_line(text: str, at: int) -> str:
    line = _line_before(text, at)
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at]
