"""Normalises arguments as real clients send them (JSON in strings, placeholders, names and arguments of other
servers), and rejects invalid Unicode.

Of what other servers and agents have and our tools lack, only what changes nothing, or can be said with an
argument of ours, is taken. The rest stays unknown, and validation names it.
"""

import json
import math
import posixpath
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat

from pydantic import JsonValue

SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON implementation carries exactly (RFC 8259, section 6)."""

MAX_DEPTH = 32


def refusal(value: JsonValue, depth: int = 0) -> str | None:
    """Return why no tool may see `value`, or None.

    Refused everywhere: numbers that are not finite or not exact, text that is no valid Unicode or holds NUL,
    and nesting deeper than 32.
    """
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return "half of a surrogate pair"
            return "a NUL character" if "\0" in value else None
        case bool() | None:
            return None
        case int():
            return "an integer beyond 2^53" if abs(value) > SAFE_INTEGER else None
        case float():
            return None if math.isfinite(value) else "a number that is not finite"
        case _:
            parts = value if isinstance(value, list) else ["".join(value), *value.values()]
            return next(filter(None, map(refusal, parts, repeat(depth + 1))), None)


def lenient(
    arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], *, is_closed: bool | None = None
) -> dict[str, JsonValue]:
    """Mend what real clients get wrong, by the tool's JSON Schema; everything else stays for validation.

    An argument that other servers have gets our name and form. A list, object, number or boolean sent as
    JSON text is parsed, and a whole number such as 5.0 is an integer. An optional argument sent as null
    or "" counts as not sent, unless its schema allows an empty string by name (`minLength: 0`). So do
    fields of objects. Unless a call `is_closed`, as its schema says, no argument of it is unknown.
    """
    if is_closed is None:
        is_closed = schema.get("additionalProperties") is False
    properties, required = _mapping(schema.get("properties")), schema.get("required")
    named = arguments
    # Under our own names, only a list may stand for something else.
    if not arguments.keys() <= properties.keys() or list in map(type, arguments.values()):
        sent = adapted(arguments, properties) if is_closed else arguments
        named = {own_name(name, properties, sent): value for name, value in sent.items()}
        if any(named[own_name(name, properties, sent)] != value for name, value in sent.items()):
            # Two names mean one argument: validation names the one that is not ours.
            named = sent
    kept: dict[str, JsonValue] = {}
    for name, value in named.items():
        argument = _mapping(properties.get(name))
        is_unsent = value is None or (value == "" and argument.get("minLength") != 0)
        is_required = isinstance(required, list) and name in required
        if is_required or not is_unsent or name not in properties:
            kept[name] = _mended(value, argument, is_closed=is_closed)
    return kept


def _mended(value: JsonValue, schema: Mapping[str, JsonValue], *, is_closed: bool) -> JsonValue:
    """Mend what lies inside an argument in the same way."""
    match parsed(value, schema.get("type")):
        case dict() as parts if "properties" in schema:
            return lenient(parts, schema, is_closed=is_closed)
        case list() as items:
            return [_mended(item, _mapping(schema.get("items")), is_closed=is_closed) for item in items]
        case other:
            return other


def placeholders(arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return the optional arguments sent as 0 or "", by the tool's JSON Schema.

    Clients in strict mode must send every argument. For one they have no value for they send the zero of its
    type, which may also be meant: the caller decides whether it can be.
    """
    required = schema.get("required")
    optional = _mapping(schema.get("properties")).keys() - (required if isinstance(required, list) else ())
    sent = arguments.keys() & optional
    return frozenset(name for name in sent if _is_zero(arguments[name], argument_type(schema, name)))


def _is_zero(value: JsonValue, kind: JsonValue) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value == 0 and kind in ("integer", "number")
    return value == "" and kind == "string"


def argument_type(schema: Mapping[str, JsonValue], name: str) -> JsonValue:
    """Return the type of the argument `name` in the JSON Schema of a tool, None if it says none."""
    return _mapping(_mapping(schema.get("properties")).get(name)).get("type")


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


_TYPES: Mapping[JsonValue, tuple[type, ...]] = {
    "array": (list,),
    "object": (dict,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}
"""What JSON text may stand for, by the type in the schema."""


def parsed(value: JsonValue, kind: JsonValue) -> JsonValue:
    """Parse `value` if it is JSON text for the type `kind` of a JSON Schema, and return it otherwise."""
    if isinstance(value, str) and kind in _TYPES:
        try:
            meant: JsonValue = json.loads(value.lower() if kind == "boolean" else value)
        except (ValueError, RecursionError):
            return value
        if type(meant) not in _TYPES[kind] or refusal(meant):
            return value
        value = meant
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


_Arguments = Mapping[str, JsonValue]
_Sent = dict[str, JsonValue]


_HABITS: Sequence[tuple[str, str, Sequence[JsonValue], _Arguments]] = (
    ("dry_run", "old_string", (False,), {}),
    ("expected_replacements", "old_string", (1,), {}),
    ("mode", "content", ("rewrite", "overwrite"), {}),
    ("mode", "content", ("append",), {"append": True}),
    ("should_read_entire_file", "offset", (False,), {}),
    ("depth", "details", (1,), {}),
    ("recursive", "details", (False,), {}),
    ("hidden", "include_ignored", (False,), {}),
    ("hidden", "include_ignored", (True,), {"include_ignored": True}),
    ("respect_git_ignore", "include_ignored", (True,), {}),
    ("respect_git_ignore", "include_ignored", (False,), {"include_ignored": True}),
    ("case_sensitive", "-i", (True,), {}),
    ("case_sensitive", "-i", (False,), {"-i": True}),
    ("is_regexp", "pattern", (True,), {}),
    ("literal_search", "pattern", (False,), {}),
    ("fixed_strings", "pattern", (False,), {}),
    ("search_type", "output_mode", ("content",), {"output_mode": "content"}),
    ("shell", "command", ("bash", "/bin/bash"), {}),
    ("require_user_approval", "command", (False,), {}),
    ("merge", "todos", (False,), {}),
    ("is_new_cell", "edit_mode", (False,), {"edit_mode": "replace"}),
    ("is_new_cell", "edit_mode", (True,), {"edit_mode": "insert"}),
    ("cell_language", "cell_type", ("python",), {"cell_type": "code"}),
    ("cell_language", "cell_type", ("markdown",), {"cell_type": "markdown"}),
    ("language", "cell_type", ("python",), {"cell_type": "code"}),
    ("language", "cell_type", ("markdown",), {"cell_type": "markdown"}),
)
"""An argument, one that the tool has, values of the first, and what stands for them: nothing when they ask
for what the tool does anyway.
"""

_EXPLANATIONS = ("explanation", "goal", "instruction", "instructions", "reason")
"""Why the call is made, in words."""

_WITHOUT_EFFECT = {"id": "status", "yield_time_ms": "command", "max_output_tokens": "command"}
"""By name an argument that tools with it have: our todos go by their order, and commands have bounds."""


def adapted(arguments: _Arguments, properties: _Arguments) -> dict[str, JsonValue]:
    """Return the arguments of a call with ours for those that `properties` lacks, as far as there are any."""
    sent = {name if name in properties else snake_case(name): name for name in arguments}
    if len(sent) < len(arguments):
        return dict(arguments)
    found = {known: arguments[name] for known, name in sent.items()}
    for convert in (_range_of_lines, _literal_pattern, _script, _path_in_repository, _joined_source):
        convert(found, properties)
    kept: dict[str, JsonValue] = {}
    for name, value in found.items():
        ours = None if name in properties else _meaning(name, value, properties)
        if ours is None or any(own in found for own in ours):
            kept[name] = value
        else:
            kept.update(ours)
    return {sent.get(name, name): value for name, value in kept.items()}


def _meaning(name: str, value: JsonValue, properties: _Arguments) -> _Arguments | None:
    """Return what stands for an unknown argument, None where nothing does."""
    if value in (None, "", [], {}) or (isinstance(value, str) and name in _EXPLANATIONS):
        return {}
    if _WITHOUT_EFFECT.get(name) in properties:
        return {}
    for habit, own, values, ours in _HABITS:
        # By type too: in Python, True is 1.
        if habit == name and own in properties and (type(value), value) in [(type(v), v) for v in values]:
            return ours
    return None


_PAGES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

_LINES = (
    ("start_line", "end_line"),
    ("start_line_one_indexed", "end_line_one_indexed_inclusive"),
    ("line_start", "line_end"),
)


def _range_of_lines(sent: _Sent, properties: _Arguments) -> None:
    """The first and the last line or page, counted from 1, are an offset and a limit."""
    if not {"offset", "limit"} <= set(properties) or {"offset", "limit"} & set(sent):
        return
    pages = _PAGES.fullmatch(str(sent.get("pages")))
    if pages and str(sent.get("path", sent.get("file_path"))).lower().endswith(".pdf"):
        sent["view_range"] = [int(pages[1]), int(pages[2] or pages[1])]
        del sent["pages"]
    match sent.get("view_range"), sent.get("tail"):
        case [int(first), int(last)], None if first >= 1 and (last >= first or last == -1):
            del sent["view_range"]
            sent |= {"offset": first - 1} | ({} if last == -1 else {"limit": last - first + 1})
        case None, int(lines) if lines >= 1 and "column" in properties:
            del sent["tail"]
            sent["offset"] = -lines
        case _:
            pass
    for start, end in _LINES:
        first, last = sent.get(start), sent.get(end)
        if type(first) is int and type(last) is int and 1 <= first <= last:
            del sent[start], sent[end]
            if sent.get("should_read_entire_file") is True:
                del sent["should_read_entire_file"]
            else:
                sent |= {"offset": first - 1, "limit": last - first + 1}
            return


_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_LITERAL = {"is_regexp": False, "literal_search": True, "fixed_strings": True}


def _literal_pattern(sent: _Sent, properties: _Arguments) -> None:
    """A text that is no regular expression is searched for as it is."""
    asked = [name for name, value in _LITERAL.items() if sent.get(name) is value]
    pattern = next((name for name in ("pattern", "query") if isinstance(sent.get(name), str)), None)
    if asked and pattern is not None and "-i" in properties:
        for name in asked:
            del sent[name]
        sent[pattern] = _SPECIAL.sub(r"\\\g<0>", str(sent[pattern]))


_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh")


def _script(sent: _Sent, properties: _Arguments) -> None:
    """The words of a command are a script."""
    words = _texts(sent.get("command"))
    if not words or "cwd" not in properties:
        return
    match words:
        case [shell, "-c" | "-lc", script] if shell in _SHELLS:
            sent["command"] = script
        case _:
            sent["command"] = shlex.join(words)


def _path_in_repository(sent: _Sent, properties: _Arguments) -> None:
    """A repository and a path in it are one path."""
    repository, path = sent.get("repo_path"), sent.get("file_path")
    if isinstance(repository, str) and isinstance(path, str) and "path" in properties:
        del sent["repo_path"], sent["file_path"]
        sent["path"] = posixpath.join(repository, path)


def _joined_source(sent: _Sent, properties: _Arguments) -> None:
    """The lines of a cell, as notebooks keep them, are its text."""
    name = next((name for name in ("new_source", "new_code") if isinstance(sent.get(name), list)), "")
    lines = _texts(sent.get(name))
    if lines is not None and "new_source" in properties:
        sent[name] = "\n".join(text.removesuffix("\n") for text in lines)


def _texts(value: JsonValue) -> list[str] | None:
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return texts if isinstance(value, list) and len(texts) == len(value) else None


_GROUPS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "path file_path filepath file filename file_name target_file absolute_path notebook_path",
        "path repo_path repository_path dir_path relative_workspace_path target_notebook",
        "path path1 file1 file_path_1",
        "other_path path2 file2 file_path_2",
        "cell_number cell_idx cell_index",
        "edit_mode edit_type",
        "new_source new_code",
        "code input",
        "commit revision",
        "run_in_background is_background background",
        "old_string old_text old_str",
        "new_string new_text new_str",
        "content contents text file_text",
        "command cmd script",
        "pattern regex query search_pattern",
        "pattern glob",
        "glob include file_pattern include_pattern",
        "cwd workdir working_directory working_dir directory dir_path",
        "timeout timeout_ms",
        "max_depth depth",
        "head_limit limit max_count max_results count",
        "limit length head",
        "-i ignore_case case_insensitive",
        "-n line_numbers show_line_numbers",
        "-A after_context",
        "-B before_context",
        "-C context context_lines",
        "task_id id handle bash_id shell_id",
    )
)
"""Names that mean the same. Where a tool has one of a group, the others stand for it; a tool that has two of
them keeps them apart."""


def own_name(given: str, names: Collection[str], sent: _Arguments) -> str:
    """Our name for the argument `given`: itself if it is one of `names` or nothing else is meant.

    `sent` are all arguments of the call: what was sent under its own name has a second one only for the same
    value.
    """
    if given in names:
        return given
    snake = snake_case(given)
    candidates = {name for group in _GROUPS if snake in group for name in group if name in names}
    if snake in names:
        candidates = {snake}
    free = {name for name in candidates if name not in sent or sent[name] == sent[given]}
    return free.pop() if len(candidates) == 1 and free else given


def snake_case(name: str) -> str:
    """`filePath` → `file_path`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
