"""Clients of Windows that start this server in WSL: where their files are, and how they start it."""

import dataclasses
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcp_toolserver.commands.setup.clients import Client
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.which import find_program
from mcp_toolserver.runtime.windows_paths import find_windows_paths
from mcp_toolserver.text.windows_paths import WindowsPaths

_WSL = "wsl.exe"
_SECONDS = 30
"""For Windows to answer; the first program after its start takes some seconds."""


def windows_places(environ: Mapping[str, str]) -> Places:
    """The folders of the user of Windows, as this distribution sees them.

    Raises:
        SettingsError: this is not WSL, or Windows does not name its folders.
    """
    windows = find_windows_paths(environ)
    if windows is None:
        raise SettingsError("--windows configures a client of Windows from WSL, and this is not WSL")
    answer = _ask(("%USERPROFILE%", "%APPDATA%"), windows, environ)
    found = [windows.local(path) for path in answer]
    if len(found) != 2 or found[0] is None or found[1] is None:
        raise SettingsError(
            f"the folders of the user of Windows are not on a mounted drive: {', '.join(answer)}"
        )
    return dataclasses.replace(
        Places.of(environ), home=Path(found[0]), application=Path(found[1]), wsl=windows.distribution
    )


def _ask(variables: Sequence[str], windows: WindowsPaths, environ: Mapping[str, str]) -> list[str]:
    """The values of variables of Windows."""
    drive = windows.drives.get("c", "/")
    system = f"{drive}/Windows/System32"
    program = find_program(("cmd.exe",), [*environ.get("PATH", "").split(os.pathsep), system])
    if program is None:
        raise SettingsError("cmd.exe is not on the PATH; it names the folders of the user of Windows")
    command = [program, "/d", "/u", "/c", "&".join(f"echo {variable}" for variable in variables)]
    try:
        # In a folder of Linux cmd.exe prints a warning. With /u it answers in UTF-16 for any code page.
        ended = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, cwd=drive, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingsError(f"Windows did not name the folders of its user: {error}") from None
    return ended.stdout.decode("utf-16-le", errors="replace").split("\r\n")[: len(variables)]


def on_windows(client: Client) -> Client:
    """The client as it is on Windows. It has no folder that a server in WSL could work in without a name.

    Raises:
        SettingsError: setup does not know its files on Windows.
    """
    if not client.on_windows:
        raise SettingsError(f"setup does not configure {client.title} on Windows; leave --windows out")
    return dataclasses.replace(client, root=None, project=None)


def launcher(places: Places) -> tuple[str, ...]:
    """What comes before the command of the server; nothing for a client on this system."""
    return (_WSL, "--distribution", places.wsl, "--exec") if places.wsl else ()
