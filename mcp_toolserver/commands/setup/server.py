"""Decides which server is configured in a client: its command with flags, or its address."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.commands.setup.clients import TOKEN, Client, Entry, Local, Remote, command_of
from mcp_toolserver.commands.setup.places import contains
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import SetupRequest
from mcp_toolserver.runtime.which import is_inside
from mcp_toolserver.settings import OPTIONS, Option, Settings, Value

_OWN = frozenset({"permission-mode", "root", "transport"})
"""Settings that are written in a place of their own."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the entry of a client is made from."""

    client: Client
    settings: Settings
    request: SetupRequest
    program: tuple[str, ...]
    """The command of the server without its flags."""
    launcher: tuple[str, ...]
    """What the client starts the program with, where it cannot start it itself."""
    homes: tuple[Path, ...]
    project: Path
    file: Path
    """The client's file that gets the entry."""

    @property
    def mode(self) -> Permission:
        """The permission mode; variables of this process do not count, as the client does not have them."""
        given = "permission-mode" in self.request.given
        return self.settings.permission_mode if given else Permission.READ_ONLY


def entry(inputs: Inputs) -> Entry:
    """Return the entry for the client.

    Raises:
        SettingsError: flags contradict each other, no folder is named, or a folder is one that tools must
            not work in.
    """
    shape, name = inputs.client.shape, inputs.request.name
    if not _is_remote(inputs):
        return shape.local(Local(command=_command(inputs)), name)
    if shape.remote is None:
        raise SettingsError(f"setup does not configure servers over HTTP in {inputs.client.title}")
    return shape.remote(Remote(url=_url(inputs)), name)


def _is_remote(inputs: Inputs) -> bool:
    transport = inputs.settings.transport if "transport" in inputs.request.given else "stdio"
    if transport == "sse":
        raise SettingsError("setup configures --transport stdio or http; sse is for older clients")
    if (transport == "http") != (inputs.request.url is not None):
        raise SettingsError("--transport http and --url URL belong together")
    return transport == "http"


def _url(inputs: Inputs) -> str:
    if more := sorted(inputs.request.given - {"transport"}):
        raise SettingsError(f"--{more[0]} is decided by the server that runs at --url; leave it out")
    url = inputs.request.url or ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise SettingsError(
            f"--url: {url!r} is not the address of a server, such as http://127.0.0.1:8765/mcp"
        )
    return url


def _command(inputs: Inputs) -> tuple[str, ...]:
    roots = _roots(inputs)
    _check_places(inputs, roots)
    flags = ["--permission-mode", inputs.mode.flag]
    flags += [word for root in roots for word in ("--root", root)]
    if inputs.request.config is not None:
        flags += ["--config", os.path.abspath(inputs.settings.config or "")]
    for option in OPTIONS:
        if option.name in inputs.request.given - _OWN:
            flags += _flags(option, getattr(inputs.settings, option.attribute))
    return (*inputs.launcher, *inputs.program, *flags, *_confine_flags(inputs))


def _confine_flags(inputs: Inputs) -> tuple[str, ...]:
    confine = inputs.client.confine_flags
    if confine is None or not inputs.request.confine or inputs.mode is Permission.READ_ONLY:
        return ()
    name, value = confine
    return () if name in inputs.request.given else (f"--{name}", value)


def _flags(option: Option, value: Value) -> list[str]:
    if option.switch:
        return [f"--{option.name}"]
    if option.expand is not None and isinstance(value, str):
        value = os.path.abspath(value)
    if isinstance(value, tuple):
        if option.repeatable:
            return [word for one in value for word in (f"--{option.name}", one)]
        value = ",".join(value)
    return [f"--{option.name}", value.flag if isinstance(value, Permission) else str(value)]


def _roots(inputs: Inputs) -> tuple[str, ...]:
    client, given = inputs.client, "root" in inputs.request.given
    if not given and client.root is not None:
        return (client.root,)
    if given:
        return tuple(root if root == client.root else os.path.abspath(root) for root in inputs.settings.root)
    if inputs.request.scope == "project":
        return (str(inputs.project),)
    raise SettingsError(
        f"{client.title} does not tell a server which folder is open; name the folder that the tools work "
        "in with --root DIR"
    )


def _check_places(inputs: Inputs, roots: tuple[str, ...]) -> None:
    """Reject folders in which tools could change the user's configuration or this server."""
    folders = [root for root in roots if root != inputs.client.root]
    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(f"--root {folder} is not a folder")
        if any(_lies_in(str(home), [folder]) for home in inputs.homes):
            raise SettingsError(
                f"--root {folder} contains your home folder, with the keys and the configuration of other "
                "programs; name a folder in it"
            )
    if inputs.mode is Permission.READ_ONLY:
        return
    if inputs.request.scope == "project":
        folders.append(str(inputs.project))
    elif _lies_in(str(inputs.file), folders):
        raise SettingsError(f"{inputs.file} is in a root, where tools could change it; choose another --root")
    if _lies_in(inputs.program[0], folders):
        raise SettingsError(
            f"the program {inputs.program[0]} is in a root, where tools could change it; install it "
            "elsewhere, for example with pipx or uv tool, or choose another --root"
        )


def _lies_in(path: str, folders: Sequence[str]) -> bool:
    return is_inside(path, folders) or any(contains(folder, path) for folder in folders)


# --- an entry that is there already ----------------------------------------------------------------------


def is_ours(found: Entry) -> bool:
    """Whether an entry of a client's file starts this server, or connects to it."""
    return TOKEN in str(found) or any(
        "mcp-toolserver" in word or "mcp_toolserver" in word for word in command_of(found)
    )
