"""What the server tells every client about itself, in at most 1,500 characters."""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities import Permission

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
    named = "\n".join(f"- {root}" for root in roots[:8])
    more = f"\n- and {len(roots) - 8} more" if len(roots) > 8 else ""
    text = (
        f"Tools for working on files. Permission mode: {mode.flag}, fixed when the server started; nothing "
        f"in a call changes it. {_MODES[mode]} {commands}\n"
        f"Enforced: {standing.summary}.\n"
        f"Roots (relative paths start at the first):\n{named}{more}\n"
        "Look first with glob_search and grep_search, then read the lines you need with read_file. "
        "An error says what to change; a result that was cut says how to get the rest."
    )
    return text[:1500]
