"""Arguments that other servers and agents have and our tools lack, and what stands for them, if anything.

Only what changes nothing, or can be said with an argument of ours, is taken. The rest stays unknown, and
validation names it.
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from mcp_toolserver.text.argument_names import snake_case

_Arguments = Mapping[str, JsonValue]


@dataclass(frozen=True)
class _Habit:
    """An argument `name` whose value is one of `values`, for a tool that has an argument `where`."""

    name: str
    where: str
    values: tuple[JsonValue, ...]
    ours: _Arguments = field(default_factory=dict[str, JsonValue])
    """What stands for it; nothing when it asks for what the tool does anyway."""

    def covers(self, value: JsonValue) -> bool:
        # By type too: in Python, True is 1.
        return any(type(one) is type(value) and one == value for one in self.values)


_HABITS = (
    _Habit("dry_run", "old_string", (False,)),
    _Habit("expected_replacements", "old_string", (1,)),
    _Habit("mode", "content", ("rewrite", "overwrite")),
    _Habit("should_read_entire_file", "offset", (False,)),
    _Habit("depth", "details", (1,)),
    _Habit("recursive", "details", (False,)),
    _Habit("respect_git_ignore", "include_ignored", (True,)),
    _Habit("respect_git_ignore", "include_ignored", (False,), {"include_ignored": True}),
    _Habit("case_sensitive", "-i", (True,)),
    _Habit("case_sensitive", "-i", (False,), {"-i": True}),
    _Habit("is_regexp", "pattern", (True,)),
    _Habit("literal_search", "pattern", (False,)),
    _Habit("fixed_strings", "pattern", (False,)),
    _Habit("search_type", "output_mode", ("content",), {"output_mode": "content"}),
    _Habit("shell", "command", ("bash", "/bin/bash")),
    _Habit("require_user_approval", "command", (False,)),
    _Habit("merge", "todos", (False,)),
    _Habit("is_new_cell", "edit_mode", (False,), {"edit_mode": "replace"}),
    _Habit("is_new_cell", "edit_mode", (True,), {"edit_mode": "insert"}),
    _Habit("cell_language", "cell_type", ("python",), {"cell_type": "code"}),
    _Habit("cell_language", "cell_type", ("markdown",), {"cell_type": "markdown"}),
    _Habit("language", "cell_type", ("python",), {"cell_type": "code"}),
    _Habit("language", "cell_type", ("markdown",), {"cell_type": "markdown"}),
)

_EXPLANATIONS = ("explanation", "goal", "instruction", "instructions", "reason")
"""Why the call is made, in words."""

_WITHOUT_EFFECT = {"id": "status", "yield_time_ms": "command", "max_output_tokens": "command"}
"""By name an argument that tools with it have: our todos go by their order, and commands have bounds."""


def adapted(arguments: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the arguments of a call with ours for those that `properties` lacks, as far as there are any."""
    sent = {name if name in properties else snake_case(name): name for name in arguments}
    if len(sent) < len(arguments):
        return dict(arguments)
    found = {known: arguments[name] for known, name in sent.items()}
    for conversion in _CONVERSIONS:
        found = conversion(found, properties)
    return {sent.get(name, name): value for name, value in found.items()}


def _without_habits(sent: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    kept: dict[str, JsonValue] = {}
    for name, value in sent.items():
        ours = None if name in properties else _meaning(name, value, properties)
        if ours is None or any(own in sent for own in ours):
            kept[name] = value
        else:
            kept.update(ours)
    return kept


def _meaning(name: str, value: JsonValue, properties: Mapping[str, JsonValue]) -> _Arguments | None:
    """Return what stands for an unknown argument, None where nothing does."""
    if value in (None, "", [], {}) or (isinstance(value, str) and name in _EXPLANATIONS):
        return {}
    if _WITHOUT_EFFECT.get(name) in properties:
        return {}
    habits = (one for one in _HABITS if one.name == name and one.where in properties)
    return next((one.ours for one in habits if one.covers(value)), None)


_LINES = (
    ("start_line", "end_line"),
    ("start_line_one_indexed", "end_line_one_indexed_inclusive"),
    ("line_start", "line_end"),
)


def _range_of_lines(sent: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The first and the last line, counted from 1, are an offset and a limit."""
    if not {"offset", "limit"} <= set(properties) or {"offset", "limit"} & set(sent):
        return dict(sent)
    for names in _LINES:
        first, last = (sent.get(name) for name in names)
        if type(first) is int and type(last) is int and 1 <= first <= last:
            kept = {name: value for name, value in sent.items() if name not in names}
            if kept.get("should_read_entire_file") is True:
                del kept["should_read_entire_file"]
                return kept
            return {**kept, "offset": first - 1, "limit": last - first + 1}
    return dict(sent)


_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def _literal_pattern(sent: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A text that is no regular expression is searched for as it is."""
    literal = {"is_regexp": False, "literal_search": True, "fixed_strings": True}
    asked = [name for name, value in literal.items() if sent.get(name) is value]
    pattern = next((name for name in ("pattern", "query") if isinstance(sent.get(name), str)), None)
    if not asked or pattern is None or "-i" not in properties:
        return dict(sent)
    kept = {name: value for name, value in sent.items() if name not in asked}
    return {**kept, pattern: _SPECIAL.sub(r"\\\g<0>", str(sent[pattern]))}


_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh")


def _script(sent: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The words of a command are a script."""
    words = sent.get("command")
    if not isinstance(words, list) or "cwd" not in properties or not words:
        return dict(sent)
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) < len(words):
        return dict(sent)
    match texts:
        case [shell, "-c" | "-lc", script] if shell in _SHELLS:
            return {**sent, "command": script}
        case _:
            return {**sent, "command": shlex.join(texts)}


def _path_in_repository(sent: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A repository and a path in it are one path."""
    repository, path = sent.get("repo_path"), sent.get("file_path")
    if not (isinstance(repository, str) and isinstance(path, str)) or "path" not in properties:
        return dict(sent)
    kept = {name: value for name, value in sent.items() if name not in ("repo_path", "file_path")}
    return {**kept, "path": posixpath.join(repository, path)}


def _joined_source(sent: _Arguments, properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The lines of a cell, as notebooks keep them, are its text."""
    name = next((name for name in ("new_source", "new_code") if isinstance(sent.get(name), list)), None)
    lines = sent[name] if name is not None and "new_source" in properties else None
    if name is None or not isinstance(lines, list):
        return dict(sent)
    texts = [line for line in lines if isinstance(line, str)]
    if len(texts) < len(lines):
        return dict(sent)
    return {**sent, name: "\n".join(text.removesuffix("\n") for text in texts)}


_CONVERSIONS: tuple[Callable[[_Arguments, Mapping[str, JsonValue]], dict[str, JsonValue]], ...] = (
    _range_of_lines,
    _literal_pattern,
    _script,
    _path_in_repository,
    _joined_source,
    _without_habits,
)
