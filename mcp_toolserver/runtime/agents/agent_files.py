"""Reads the types of agents that the roots define, in `.claude/agents/*.md` and `.agents/agents/*.md`.

The files come from the workspace and may be hostile. The workspace resolves their paths, so links out of the
roots and files that a rule hides are not read. A file that cannot be used is skipped with a reason.
"""

import logging
import os
from dataclasses import dataclass

from mcp_toolserver.errors import NotFound, ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.text.agents.agent_file import custom_type
from mcp_toolserver.text.agents.types import AgentType
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
    file = workspace.open_file(workspace.canonical(path))
    try:
        content = os.read(file, MAX_BYTES + 1)
        # A short read is possible on some file systems.
        while 0 < len(content) <= MAX_BYTES and (more := os.read(file, MAX_BYTES + 1 - len(content))):
            content += more
    finally:
        os.close(file)
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
