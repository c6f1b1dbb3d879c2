"""Reads the types of agents that the roots define, in `.claude/agents/*.md` and `.agents/agents/*.md`.

The files come from the workspace and may be hostile. The workspace resolves their paths, so links out of the
roots and files that a rule hides are not read. A file that cannot be used is skipped with a reason.
"""

import logging
import os
import re
from dataclasses import dataclass

from mcp_toolserver.errors import NotFound, ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.text.agents.types import BUILT_IN, AgentType, canonical_type
from mcp_toolserver.text.front_matter import Value, front_matter
from mcp_toolserver.text.lines.escape_invisible import visible

log = logging.getLogger(__name__)

FOLDERS = (".agents/agents", ".claude/agents")
"""In each root; of two files that define the same name, the first one counts."""

MAX_BYTES = 64 * 1024
"""Of one file."""

MAX_FILES = 100
"""Of one folder, in the order of their names."""

MAX_ENTRIES = 10_000
"""Names in one folder that are looked at."""

_MAX_TOOLS = 100
"""Names of tools in one file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class CustomTypes:
    """What the files define, and why some define nothing."""

    types: tuple[AgentType, ...]
    skipped: tuple[str, ...]
    """Why each file that was skipped is not used, as sentences."""


def custom_types(workspace: Workspace) -> CustomTypes:
    """Read the files of all roots. Blocks."""
    types: dict[str, AgentType] = {}
    skipped: list[str] = []
    for root in workspace.roots:
        for folder in FOLDERS:
            for path in _files(workspace, f"{root}/{folder}", skipped):
                try:
                    found = custom_type(_text(workspace, path))
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
    for why in skipped:
        log.warning("agent file skipped: %s", why)
    return CustomTypes(tuple(types.values()), tuple(skipped))


def _files(workspace: Workspace, folder: str, skipped: list[str]) -> list[str]:
    """The paths of the Markdown files in a folder."""
    try:
        opened = workspace.open_dir(workspace.canonical(folder))
    except NotFound:
        return []
    except ToolError as error:
        skipped.append(str(error))
        return []
    names: list[str] = []
    try:
        with os.scandir(opened) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    skipped.append(f"{visible(folder)} has more than {MAX_ENTRIES:,} entries.")
                    break
                if entry.name.endswith(".md"):
                    names.append(entry.name)
    finally:
        os.close(opened)
    names.sort()
    if len(names) > MAX_FILES:
        last = visible(names[MAX_FILES - 1])
        skipped.append(f"{visible(folder)} has more than {MAX_FILES} files; those after {last} are not used.")
    return [f"{folder}/{name}" for name in names[:MAX_FILES]]


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


def custom_type(text: str) -> AgentType:
    """The type that an agent file describes: its front matter has the fields name, description, tools and
    model, and its body has the instructions.

    Raises:
        ValueError: why not, in words that go on from its name.
    """
    found = front_matter(text)
    name, body = found.fields.get("name"), found.body.strip()
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("has no `name` of 1 to 64 letters, digits, - or _")
    if canonical_type(name) in BUILT_IN:
        raise ValueError(f"has the name {name}, which is that of a type that every workspace has")
    if not body:
        raise ValueError("has no instructions below its front matter")
    return AgentType(
        name=name,
        description=_line(found.fields.get("description")),
        instructions=visible(body),
        tools=_tools(found.fields.get("tools")),
        model=_model(found.fields.get("model")),
    )


def _line(field: Value) -> str:
    return visible(" ".join(field.split()))[:300] if isinstance(field, str) else ""


def _model(field: Value) -> str:
    if field is None or field == "inherit":
        return ""
    if not isinstance(field, str) or not field.isprintable() or not 0 < len(field) <= 100:
        raise ValueError("has a `model` that is not the name of a model")
    return field


def _tools(field: Value) -> tuple[str, ...] | None:
    """Comma-separated or a list; `*` is all of the caller's. Commas in parentheses belong to a rule."""
    parts = re.split(r",(?![^()]*\))", field) if isinstance(field, str) else field
    if parts is None:
        return None
    if not isinstance(parts, list | tuple) or len(parts) > _MAX_TOOLS:
        raise ValueError(f"has `tools` that are not a list of at most {_MAX_TOOLS} names")
    names: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise ValueError("has `tools` with a name that is not text")
        names.append(part.strip())
    return None if names == ["*"] else tuple(filter(None, names))
