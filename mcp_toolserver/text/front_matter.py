"""Reads YAML front matter: the block between two lines `---` at the start of a Markdown file.

The files come from the workspace and may be hostile. The parser's events are counted as they come, so a text
over a limit is refused before its values exist. Anchors, aliases and tags are refused.

Many files in use have text without quotes that YAML does not accept, such as `description: Use when: …` or
`argument-hint: [file] [line]`. A value on one line that YAML refuses counts as text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_toolserver.text.lines.escape_invisible import visible

MAX_BYTES = 64 * 1024
"""UTF-8 bytes of the block."""

MAX_NODES = 1_000
"""Keys and values of the block, lists and mappings included."""

MAX_DEPTH = 8
"""Lists and mappings inside one another, the fields themselves included."""

Value = str | int | float | bool | None | tuple["Value", ...] | Mapping[str, "Value"]

MAX_LINE = 8_192
"""Characters of a line of the block."""

MAX_FIELDS = 40
"""Fields without effect that are named."""

_SHOWN = 40
"""Characters of the name of such a field."""

MAX_BRACKETS = 200
"""Opening brackets and braces of the block. The parser's time grows with the square of their number."""

_MAX_QUOTED = 50
"""Lines whose value YAML refuses. Each costs a run of the parser."""

_START = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)

_FORBIDDEN = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Control characters other than tab and line end, line separators, surrogates, byte order marks."""

_LINE = re.compile(r"([A-Za-z][\w-]*):[ \t]+([^\s|>&!].*)")
"""A field whose value is on its line and is neither a block nor an anchor or tag."""

_NODES = frozenset({"Scalar", "SequenceStart", "MappingStart", "Alias"})
"""Kinds of events that begin a value."""

_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,15}|[0-9]{0,15}\.[0-9]{1,15}|[0-9]{1,15}\.)(?:[eE][-+]?[0-9]{1,2})?")
_WORDS: Mapping[str, bool | None] = {
    word: value
    for name, value in (("true", True), ("false", False), ("null", None))
    for word in (name, name.title(), name.upper())
} | {"": None, "~": None}


@dataclass(frozen=True, kw_only=True)
class FrontMatter:
    """The fields of a Markdown file, and the text below them."""

    fields: Mapping[str, Value]
    body: str

    def first(self, name: str) -> Value:
        """The value of a field; `allowed-tools` is also `allowedTools` and `allowed_tools`."""
        found = (value for one, value in self.fields.items() if _spelt(one) == _spelt(name))
        return next(found, None)

    def has(self, name: str) -> bool:
        return _spelt(name) in map(_spelt, self.fields)

    def others(self, names: Iterable[str]) -> tuple[str, ...]:
        """The fields that are none of these, made visible."""
        known = set(map(_spelt, names))
        return tuple(visible(one)[:_SHOWN] for one in self.fields if _spelt(one) not in known)


def _spelt(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def without_effect(files: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """A sentence that names each field that has no effect once, from the names of files and their fields;
    nothing if there is none."""
    found: dict[str, list[str]] = {}
    for file, fields in files:
        for one in fields:
            found.setdefault(one, []).append(file)
    shown = [f"{one} ({_some(found[one], 3)})" for one in sorted(found)]
    return (f"Fields without effect here: {_some(shown, MAX_FIELDS)}.",) if shown else ()


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def front_matter(text: str, *, max_bytes: int = MAX_BYTES) -> FrontMatter:
    """Split the text of a Markdown file; one without front matter has no fields.

    `max_bytes` limits the block, in UTF-8.

    Raises:
        ValueError: the block is too large, does not end, or is no plain YAML mapping. The message continues a
            sentence that begins with the name of the file.
    """
    text = text.removeprefix("\ufeff")
    start = _START.match(text)
    if start is None:
        return FrontMatter(fields={}, body=text)
    end = _END.search(text, start.end(), start.end() + max_bytes + 8)
    if end is None and len(text) > start.end() + max_bytes:
        raise ValueError(f"has more than {max_bytes:,} bytes of front matter")
    if end is None:
        raise ValueError("has no second line `---`, which ends the front matter")
    block = text[start.end() : end.start()]
    if len(block.encode(errors="replace")) > max_bytes:
        raise ValueError(f"has more than {max_bytes:,} bytes of front matter")
    return FrontMatter(fields=_fields(block), body=text[end.end() :])


def _fields(block: str) -> Mapping[str, Value]:
    if max(map(len, block.split("\n"))) > MAX_LINE:
        raise ValueError(f"has a line of more than {MAX_LINE:,} characters in its front matter")
    if block.count("[") + block.count("{") > MAX_BRACKETS:
        raise ValueError(f"has more than {MAX_BRACKETS} brackets and braces in its front matter")
    if (hidden := _FORBIDDEN.search(block)) is not None:
        raise ValueError(f"has a character in its front matter that does not belong there: {hidden[0]!a}")
    try:
        return _parsed(block)
    except _NotYaml:
        return _parsed(_quoted(block))


class _NotYaml(ValueError):
    """The text is not YAML, in contrast to YAML that is refused."""


def _quoted(block: str) -> str:
    """The block, with quotes around every value on one line that is no YAML."""
    lines = block.splitlines()
    left = _MAX_QUOTED
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        found = _LINE.fullmatch(line)
        if left and found is not None and not after[:1].isspace() and not _is_yaml(line):
            value = found[2].strip().replace("'", "''")
            lines[number] = f"{found[1]}: '{value}'"
            left -= 1
    return "\n".join(lines)


def _is_yaml(text: str) -> bool:
    try:
        _parsed(text)
    except _NotYaml:
        return False
    return True


def _parsed(block: str) -> Mapping[str, Value]:
    """Raises: _NotYaml; ValueError: as `front_matter`."""
    fields: Value = None
    events = _events(block)
    for kind, event in events:
        if kind in _NODES:
            fields = _value(events, kind, event, 1)
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise ValueError("has front matter that is not a mapping of names to values")
    return fields


def _value(events: Iterator[tuple[str, Any]], kind: str, event: Any, depth: int) -> Value:
    """Build the value that begins with this event from the events that follow."""
    if kind == "Scalar":
        return _resolved(event.value) if event.implicit[0] else str(event.value)
    if depth > MAX_DEPTH:
        raise ValueError(
            f"has more than {MAX_DEPTH} lists and mappings inside one another in its front matter"
        )
    rest = itertools.takewhile(lambda found: found[0] not in ("SequenceEnd", "MappingEnd"), events)
    if kind == "SequenceStart":
        return tuple(_value(events, *found, depth + 1) for found in rest)
    values: dict[str, Value] = {}
    for key_kind, key in rest:
        if key_kind != "Scalar":
            raise ValueError("has a list or mapping as a name in its front matter")
        if key.value in values:
            raise ValueError(f"has the field {key.value[:64]!a} twice in its front matter")
        values[key.value] = _value(events, *next(events), depth + 1)
    return values


def _events(block: str) -> Iterator[tuple[str, Any]]:
    """The parser's events and the names of their kinds, within the limits on single ones and their number."""
    import ruamel.yaml
    from ruamel.yaml.error import YAMLError

    library: Any = ruamel.yaml
    nodes = 0
    try:
        for event in library.YAML(typ="safe", pure=True).parse(block):
            kind = type(event).__name__.removesuffix("Event")
            nodes += kind in _NODES
            _check(kind, event, nodes)
            yield kind, event
    except YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2})" if mark else ""
        what = getattr(error, "problem", None) or "it contains a character that YAML does not allow"
        raise _NotYaml(f"has front matter that is not YAML{where}: {what}") from None


def _check(kind: str, event: Any, nodes: int) -> None:
    if kind in ("DocumentStart", "DocumentEnd") and event.explicit:
        raise ValueError("has a YAML directive or document marker in its front matter; remove it")
    if nodes > MAX_NODES:
        raise ValueError(f"has more than {MAX_NODES:,} keys and values in its front matter")
    if kind == "Alias" or (kind in _NODES and event.anchor is not None):
        raise ValueError(
            "has an anchor or alias (& or *) in its front matter; write the value out, or quote it"
        )
    if kind in _NODES and event.tag is not None:
        raise ValueError("has a tag (!) in its front matter; remove it, or quote the value")


def _resolved(text: str) -> Value:
    """The value of a scalar without quotes; dates stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text) is None:
        return text
    return float(text) if set(text) & set(".eE") else int(text)
