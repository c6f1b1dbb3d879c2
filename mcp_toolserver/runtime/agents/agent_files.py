"""Reads the types of agents that the roots define: `*.md` in `.claude/agents/` and `.agents/agents/`, and in
folders within.

The files come from the workspace and may be hostile. The workspace resolves their paths, so links out of the
roots and files that a rule hides are not read. A file that cannot be used is skipped with a reason. A file
only takes rights.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import NotFound, ToolError
from mcp_toolserver.text.agents.types import BUILT_IN, AgentType, canonical_type
from mcp_toolserver.text.front_matter import FrontMatter, Value, front_matter, without_effect
from mcp_toolserver.text.lines.escape_invisible import visible

if TYPE_CHECKING:
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.runtime.files.workspace import Workspace

log = logging.getLogger(__name__)

FOLDERS = (".agents/agents", ".claude/agents")
"""In each root; of two files that define the same name, the first one counts."""

MAX_BYTES = 64 * 1024
"""Of one file."""

MAX_FRONT_MATTER = 16 * 1024
"""Bytes of its front matter; hostile YAML costs about 1 µs per byte."""

MAX_FILES = 100
"""Of one folder and those within, in the order of their paths."""

MAX_ENTRIES = 10_000
"""Names in them that are looked at."""

MAX_DEPTH = 4
"""Of a folder within."""

_MAX_TOOLS = 100
"""Names of tools in one file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_FIELDS = (
    "name",
    "description",
    "tools",
    "disallowed-tools",
    "model",
    "permission-mode",
    "isolation",
    "readonly",
)

_FAMILIES = ("opus", "sonnet", "haiku")
"""Words by which files name models."""

_CEILINGS: Mapping[Value, Permission] = {
    "plan": Permission.READ_ONLY,
    "acceptEdits": Permission.WORKSPACE_WRITE,
    **dict.fromkeys((None, "default", "auto", "dontAsk", "bypassPermissions"), Permission.DANGER_FULL_ACCESS),
}
"""By `permission-mode`."""


@dataclass(frozen=True)
class CustomTypes:
    """What the files define, and why some define nothing."""

    types: tuple[AgentType, ...]
    skipped: tuple[str, ...]
    """Why files are not used, and which fields have no effect, as sentences."""


def custom_types(workspace: Workspace) -> CustomTypes:
    """Read the files of all roots. Blocks."""
    types: dict[str, AgentType] = {}
    skipped: list[str] = []
    for root in workspace.roots:
        for folder in FOLDERS:
            for path in _files(workspace, f"{root}/{folder}", skipped):
                try:
                    stem = os.path.basename(path).removesuffix(".md").removesuffix(".agent")
                    found = custom_type(_text(workspace, path), stem)
                except ToolError as error:
                    # Its text names the path.
                    skipped.append(str(error))
                    continue
                except ValueError as error:
                    skipped.append(f"{visible(path)} {error}.")
                    continue
                if found.name in types:
                    skipped.append(f"{visible(path)} has the name {found.name}, which another file has.")
                    continue
                types[found.name] = found
    skipped += without_effect((one.name, one.unsupported) for one in types.values())
    for why in skipped:
        _warn(why)
    return CustomTypes(tuple(types.values()), tuple(skipped))


@lru_cache(1_000)
def _warn(why: str) -> None:
    """Log each reason once."""
    log.warning("agent files: %s", why)


def _files(workspace: Workspace, folder: str, skipped: list[str]) -> list[str]:
    """The paths of the Markdown files in a folder and in those within."""
    found: list[str] = []
    waiting, left = [folder], MAX_ENTRIES
    while waiting:
        place = waiting.pop()
        entries = _entries(workspace, place, left + 1, skipped)
        left -= len(entries)
        if left < 0:
            skipped.append(f"{visible(folder)} has more than {MAX_ENTRIES:,} entries.")
            waiting.clear()
        found += (f"{place}/{name}" for name, _ in entries if name.endswith(".md"))
        if left >= 0 and place.count("/") < folder.count("/") + MAX_DEPTH:
            waiting += (f"{place}/{name}" for name, is_folder in entries if is_folder)
    found.sort()
    if len(found) > MAX_FILES:
        last = visible(os.path.basename(found[MAX_FILES - 1]))
        skipped.append(f"{visible(folder)} has more than {MAX_FILES} files; those after {last} are not used.")
    return found[:MAX_FILES]


def _entries(workspace: Workspace, folder: str, most: int, skipped: list[str]) -> list[tuple[str, bool]]:
    """The names in a folder, each with whether it is a folder to search; none if it cannot be listed."""
    try:
        opened = workspace.open_dir(workspace.canonical(folder))
    except NotFound:
        return []
    except ToolError as error:
        skipped.append(str(error))
        return []
    try:
        with os.scandir(opened) as entries:
            return [(entry.name, _is_searched(entry)) for entry in islice(entries, most)]
    finally:
        os.close(opened)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    return entry.name[0] != "." and not entry.name.endswith(".md") and entry.is_dir(follow_symlinks=False)


def _text(workspace: Workspace, path: str) -> str:
    """Raises: ToolError: it cannot be read; ValueError: it is too large or not UTF-8."""
    with os.fdopen(workspace.open_file(workspace.canonical(path)), "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None


@lru_cache(2 * MAX_FILES)
def custom_type(text: str, stem: str = "") -> AgentType:
    """The type that an agent file describes. `stem` is the name of the file, which is that of the type if it
    has a description but no name of its own.

    Raises:
        ValueError: why not, in words that go on from its name.
    """
    found = front_matter(text, max_bytes=MAX_FRONT_MATTER)
    description, body = _line(found.first("description")), found.body.strip()
    name = found.first("name")
    if name is None and description:
        name = stem
    name = "-".join(name.split()) if isinstance(name, str) else ""
    if not _NAME.fullmatch(name):
        raise ValueError("has no `name` of 1 to 64 letters, digits, - or _")
    if canonical_type(name) in BUILT_IN:
        raise ValueError(f"has the name {name}, which is that of a type that every workspace has")
    if not body:
        raise ValueError("has no instructions below its front matter")
    tools, off = _tools(found, "tools")
    return AgentType(
        name=name,
        description=description,
        instructions=visible(body),
        ceiling=_ceiling(found),
        tools=None if tools == ("*",) else tools,
        denied=(*(_tools(found, "disallowed-tools")[0] or ()), *off),
        model=_model(found.first("model")),
        in_worktree=found.first("isolation") == "worktree",
        unsupported=found.others(_FIELDS),
    )


def _line(field: Value) -> str:
    return visible(" ".join(field.split()))[:300] if isinstance(field, str) else ""


def _ceiling(found: FrontMatter) -> Permission:
    mode = found.first("permission-mode")
    if not isinstance(mode, str | None) or mode not in _CEILINGS:
        raise ValueError("has a `permissionMode` that is none of plan, acceptEdits and default")
    return Permission.READ_ONLY if found.first("readonly") is True else _CEILINGS[mode]


def _model(field: Value) -> str:
    """Of a list the first, which the author prefers."""
    if isinstance(field, tuple) and field:
        field = field[0]
    if field is None or field == "inherit":
        return ""
    if not isinstance(field, str) or not field.isprintable() or not 0 < len(field) <= 100:
        raise ValueError("has a `model` that is not the name of a model")
    return field


def _tools(found: FrontMatter, name: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The tools of a field: comma-separated, a list, or names with true or false; and those with false. `*`
    is all of the caller's. Commas in parentheses belong to a rule."""
    field = found.first(name)
    if field is None:
        return None, ()
    off: tuple[str, ...] = ()
    if isinstance(field, Mapping):
        off = tuple(one for one, is_on in field.items() if is_on is False and one != "*")
        field = (
            tuple(one for one, is_on in field.items() if is_on is True) if field.get("*") is False else "*"
        )
    parts = re.split(r",(?![^()]*\))", field) if isinstance(field, str) else field
    if not isinstance(parts, list | tuple) or len(parts) + len(off) > _MAX_TOOLS:
        raise ValueError(f"has `{name}` that are not a list of at most {_MAX_TOOLS} names")
    names: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise ValueError(f"has `{name}` with a name that is not text")
        names.append(part.strip())
    return (("*",) if "*" in names else tuple(filter(None, names))), off


def limited_to(calls: NestedCalls, kind: AgentType, *, source: str, advice: str) -> NestedCalls:
    """The calls, limited to what a type declares."""
    calls = calls.limited(source=source, advice=advice, ceiling=kind.ceiling, tools=kind.tools)
    if not kind.denied:
        return calls
    denied = {rule.tool for rule in calls.dispatcher.rules(kind.denied)}
    names = calls.dispatcher.registry.entries
    others = () if "*" in denied else [name for name in names if name not in denied]
    return calls.limited(source=source, advice=advice, tools=others)


def notes_on(calls: NestedCalls, kind: AgentType) -> list[str]:
    """What the caller should know of a type: the names in its file that mean no tool here."""
    named = () if kind.name in BUILT_IN else (*(kind.tools or ()), *kind.denied)
    unknown = [one for one in named if not calls.dispatcher.rules((one,))]
    return [f"its type names tools that are not here: {visible(', '.join(unknown))[:300]}"] if unknown else []


def configured_model(asked: str, names: Sequence[str]) -> str | None:
    """That of the operator's models `names` which `asked` means, by its name or as one of its family; None if
    there is none."""
    word = next((one for one in _FAMILIES if one in asked.lower()), None)
    return next((one for one in names if one == asked or (word and word in one.lower())), None)
