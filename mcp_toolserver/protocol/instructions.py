"""What the server tells every client about itself: the mode, what is enforced, how to work, and the roots."""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.prices import Permission
from mcp_toolserver.text.visible import visible

_MODES = {
    Permission.READ_ONLY: "Files inside the roots can be read and searched; nothing can be changed.",
    Permission.WORKSPACE_WRITE: "Files in the roots can be read, searched and changed.",
    Permission.DANGER_FULL_ACCESS: "Files inside the roots can be read, searched and changed.",
}
_COMMANDS = {
    Permission.READ_ONLY: "Commands run where the kernel lets them change nothing but a /tmp of their own.",
    Permission.WORKSPACE_WRITE: "Commands run where the kernel lets them change only the roots and a /tmp of "
    "their own; there, .git and what editors, shells and agents start from is read-only.",
    Permission.DANGER_FULL_ACCESS: "Commands run with the full rights of the user who started this server.",
}
_NO_COMMANDS = "No command runs."
_MANNERS = (
    "Look first with glob_search and grep_search, then read the lines you need with read_file. "
    "An error says what to change; a result that was cut says how to get the rest."
)

LONGEST = 1_500
"""Characters of the instructions; some clients cut longer ones, and what is enforced must not be lost."""

_ROOTS = 8
_MORE = "- and {} more"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What this server enforces, and by which layers."""

    mode: Permission
    commands: bool
    """Whether they are offered."""
    network: bool
    """Whether they have one."""
    summary: str
    """What enforces it, in one line."""


def instructions(standing: Standing, roots: Sequence[str]) -> str:
    """The mode, the roots and how to work with them."""
    mode = standing.mode
    network = "" if standing.network else " They have no network."
    commands = f"{_COMMANDS[mode]}{network}" if standing.commands else _NO_COMMANDS
    start = (
        f"Tools for working on files. Permission mode: {mode.flag}, fixed when the server started; nothing "
        f"in a call changes it. {_MODES[mode]} {commands}\n"
        f"Enforced: {standing.summary}.\n{_MANNERS}\nRoots (relative paths start at the first):\n"
    )
    return start + _named(roots, LONGEST - len(start))


def _named(roots: Sequence[str], room: int) -> str:
    """As many of them as there is room for, each whole; nothing else in the instructions is ever cut."""
    lines: list[str] = []
    for root in roots[:_ROOTS]:
        line = f"- {visible(root)}\n"
        if len(line) > room - len(_MORE.format(len(roots))):
            break
        lines.append(line)
        room -= len(line)
    rest = len(roots) - len(lines)
    return "".join(lines) + (_MORE.format(rest) if rest else "")
