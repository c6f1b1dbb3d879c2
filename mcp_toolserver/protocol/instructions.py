"""The MCP instructions: the permission mode, how to work, and the roots."""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.lines.escape_invisible import visible

_MODES = {
    Permission.READ_ONLY: "Files inside the roots can be read and searched; nothing can be changed.",
    Permission.WORKSPACE_WRITE: "Files in the roots can be read, searched and changed.",
    Permission.DANGER_FULL_ACCESS: "Files inside the roots can be read, searched and changed.",
}
_COMMANDS = {
    Permission.READ_ONLY: "Commands can change nothing but $TMPDIR.",
    Permission.WORKSPACE_WRITE: "Commands can change the roots and $TMPDIR, but not what editors, shells, "
    "agents and git hooks start from. Commit with git in bash, or with git_commit where .git is read-only.",
    Permission.DANGER_FULL_ACCESS: "Commands run with the full rights of the user who started this server.",
}
_NO_COMMANDS = "No command runs."
_NO_NETWORK = (
    " They have no network but a loopback interface of their own: to install packages, ask the user, who can "
    "open it with --network."
)
_LEAVING = (
    " For one run outside their sandbox, which the user has to approve, give bash an unsandboxed_reason."
)
_WAITING = (
    " A command that takes long goes on in the background: TaskOutput waits for it, TaskStop ends it. Start "
    "servers with run_in_background."
)
_MANNERS = (
    "Look first with glob_search and grep_search, then read the lines you need with read_file. "
    "An error says what to change; a result that was cut says how to get the rest."
)

LONGEST = 1_500
"""Maximum characters of the instructions, because some clients truncate longer ones."""

_ROOTS = 8
_LONGEST_FOLDER = 200
"""Characters of the path of a folder that is not a root."""
_MORE = "- and {} more"


@dataclass(frozen=True, kw_only=True)
class EnforcementStatus:
    """What this server enforces, and by which layers."""

    mode: Permission
    commands: bool
    """Whether commands are offered."""
    network: bool
    """Whether commands have a network."""
    commands_in: Permission | None = None
    """The lower mode in which commands run unless the user lets one out; None without one."""
    summary: str
    """The enforcing layers, in one line."""
    is_weakened: bool = False
    """Whether one is missing that this server has elsewhere."""
    read_only: Sequence[str] = ()
    """Roots, and folders in them, that nothing may write in."""


def instructions(
    status: EnforcementStatus, roots: Sequence[str], started_in: str = "", *, user: str = ""
) -> str:
    """The mode, the roots and how to work with them. `user` is the name of the client's token, if it has one.

    `started_in` is the absolute path, links resolved, of the folder in which the client started the server;
    empty where it says nothing of the client. The roots that a client declares are known only after it has
    read this, but most clients start a server in the folder that they work in.
    """
    mode = status.mode
    network = "" if status.network else _NO_NETWORK
    commands = f"{_COMMANDS[mode]}{network}{_WAITING}" if status.commands else _NO_COMMANDS
    if status.commands and status.commands_in is not None:
        commands = f"{_COMMANDS[status.commands_in]}{_LEAVING}{_WAITING}"
    weakened = f"Not all of that is enforced here: {status.summary}.\n" if status.is_weakened else ""
    origin = f"that of the token {user!r}" if user else "fixed when the server started"
    start = (
        f"Tools for working on files. Permission mode: {mode.flag}, {origin}; nothing "
        f"in a call changes it. {_MODES[mode]} {commands}\n"
        f"{weakened}{_MANNERS}\n{_apart(roots, started_in)}"
        "Roots (relative paths start at the first):\n"
    )
    kept = status.read_only
    inner = [path for path in kept if path not in roots and any(lies_in(root, path) for root in roots)]
    shown = [f"{path} (read-only)" if any(lies_in(one, path) for one in kept) else path for path in roots]
    return start + _named([*shown, *(f"{path} (read-only)" for path in inner)], LONGEST - len(start))


def _apart(roots: Sequence[str], started_in: str) -> str:
    """A line that says so where the client works outside all roots."""
    if not started_in or any(_meet(root, started_in) for root in roots):
        return ""
    shown = visible(started_in)
    where = f" ({shown})" if len(shown) <= _LONGEST_FOLDER else ""
    return (
        f"The folder in which this server was started{where} is outside all roots: nothing there can be "
        "used. If the user works there, ask them to start the server with --root set to that folder.\n"
    )


def _meet(one: str, other: str) -> bool:
    """Whether one of two folders is the other or lies in it."""
    first, second = (f"{path.rstrip('/')}/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


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
