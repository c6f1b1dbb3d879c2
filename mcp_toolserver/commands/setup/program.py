"""Finds the command with which a client starts this server: absolute, and valid after an upgrade."""

import json
import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.which import find_program, is_executable

NAME = "mcp-toolserver"

_MODULE = ("-P", "-m", "mcp_toolserver")
"""For Python. The current folder is not among the places of imports (-P), because it may be a workspace."""


def server_command(environ: Mapping[str, str], started_as: str) -> tuple[str, ...]:
    """Return the command, without the server's own flags.

    In a temporary environment of `uvx` or `pipx run` it is that program again. Otherwise it is the link in
    the user's folder of programs (`pipx install`, `uv tool install`) if the server was started by it, or the
    program of this Python environment.

    Args:
        started_as: the program as it was started, `sys.argv[0]`.

    Raises:
        SettingsError: the program that made the temporary environment is not on the PATH.
    """
    prefix = Path(sys.prefix)
    if any(part.startswith(("archive-v", "environments-v", "builds-v")) for part in prefix.parts):
        uv = _runner("uv", environ.get("UV"), environ)
        start = (*uv, "tool", "run", *_python_for_uv(environ), "--from", _requirement())
        # The script that uv installs is a shell script, which finds Python by programs on the PATH.
        return (*start, "python", *_MODULE)
    # Permanent environments of pipx are in a folder `venvs`.
    if prefix.parent.name in ("pipx", ".cache") and "pipx" in prefix.parts:
        return (*_runner("pipx", None, environ), "run", "--spec", _requirement(), NAME)
    script = Path(sys.executable).with_name(NAME)
    if not is_executable(str(script)):
        return (sys.executable, *_MODULE)
    link = Path(os.path.abspath(started_as))
    return (str(link if link.resolve() == script.resolve() else script),)


def _runner(name: str, known: str | None, environ: Mapping[str, str]) -> tuple[str]:
    found = known if known and os.path.isabs(known) else None
    found = found or find_program((name,), environ.get("PATH", "").split(os.pathsep))
    if found is None:
        raise SettingsError(f"{name} made this environment, which is temporary, but is not on the PATH")
    return (found,)


def _python_for_uv(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The flag that names this Python, unless uv installed it.

    uv looks for other Pythons on the PATH, which a client may not pass on, and else downloads one. The path
    is the one on the PATH, which an upgrade leaves in place. uv puts its temporary environment there first.
    """
    python = Path(sys.executable).resolve()
    if any(part.startswith("cpython-") for part in python.parts):
        return ()
    names = ("python3", f"python3.{sys.version_info.minor}")
    path = environ.get("PATH", "").split(os.pathsep)
    # A virtual environment may be temporary.
    folders = [folder for folder in path if not Path(folder).with_name("pyvenv.cfg").exists()]
    on_path = (find_program((name,), folders) for name in names)
    same = (found for found in on_path if found and Path(found).resolve() == python)
    return ("--python", next(same, str(python)))


def _requirement() -> str:
    """What was installed: a file or repository, or the name of the package."""
    try:
        source = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return NAME
    return installed_from(source) or NAME


def installed_from(source: str | None) -> str | None:
    """The file or address in a `direct_url.json` (PEP 610); None for a package from an index."""
    content: dict[str, object] = json.loads(source) if source else {}
    url, repository = content.get("url"), content.get("vcs_info")
    if not isinstance(url, str):
        return None
    return f"git+{url}" if repository else url.removeprefix("file://")
