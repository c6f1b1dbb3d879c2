"""Decides which server is configured in a client, its command with flags or its address, and starts it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import anyio

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import PROGRAM, Invocation
from mcp_toolserver.commands.setup.clients import Entry
from mcp_toolserver.commands.setup.files import MAX_BYTES, Plan
from mcp_toolserver.commands.setup.places import contains
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.client import cause, connect
from mcp_toolserver.runtime.which import find_program, is_executable, is_inside
from mcp_toolserver.settings import OPTIONS, Option, Value

_OWN = frozenset({"permission-mode", "root", "transport"})
"""Settings that are written in a place of their own."""
_SECONDS = 120
"""For a start, which may have to install the server (`uvx`)."""
_MODULE = ("-P", "-m", "mcp_toolserver")
"""For Python. The current folder is not among the places of imports (-P), because it may be a workspace."""


def mode_of(request: Invocation) -> Permission:
    """The permission mode; variables of this process do not count, as the client does not have them."""
    return request.settings.permission_mode if "permission-mode" in request.given else Permission.READ_ONLY


def entry(plan: Plan, request: Invocation, program: tuple[str, ...]) -> Entry:
    """The entry for the client; `program` is the command of the server without its flags.

    Raises:
        SettingsError: flags contradict each other, no folder is named, or tools must not work
            in one.
    """
    client = plan.client
    transport = request.settings.transport if "transport" in request.given else "stdio"
    if transport == "sse":
        raise SettingsError("setup configures --transport stdio or http; sse is for older clients")
    if (transport == "http") != (request.url is not None):
        raise SettingsError("--transport http and --url URL belong together")
    if request.url is None:
        flags = flags_of(plan, request, program[0], roots_of(plan, request))
        return client.local((*plan.places.launcher, *program, *flags), request.name)
    if client.remote is None:
        raise SettingsError(f"setup does not configure servers over HTTP in {client.title}")
    if more := sorted(request.given - {"transport"}):
        raise SettingsError(f"--{more[0]} is decided by the server that runs at --url; leave it out")
    parts = urlsplit(request.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise SettingsError(
            f"--url: {request.url!r} is not the address of a server, such as http://127.0.0.1:8765/mcp"
        )
    return client.remote(request.url)


def flags_of(plan: Plan, request: Invocation, program: str, roots: tuple[str, ...]) -> list[str]:
    """The flags of `program`, the server. Raises: SettingsError: its tools must not work in a root."""
    mode = mode_of(request)
    check_places(plan, roots, None if mode is Permission.READ_ONLY else program)
    flags = ["--permission-mode", mode.flag]
    kept = request.settings.read_only_roots
    inner = [path for path in kept if path not in map(os.path.realpath, roots)]
    for root in (*roots, *inner):
        flags += ["--root", f"{root}=read-only" if os.path.realpath(root) in kept else root]
    if request.config is not None:
        flags += ["--config", os.path.abspath(request.settings.config or "")]
    for option in OPTIONS:
        if option.name in request.given - _OWN:
            flags += _words(option, getattr(request.settings, option.attribute))
    confine = plan.client.confine_flags
    if confine and request.confine and mode is not Permission.READ_ONLY and confine[0] not in request.given:
        flags += [f"--{confine[0]}", confine[1]]
    return flags


def _words(option: Option, value: Value) -> list[str]:
    if option.switch:
        return [f"--{option.name}"]
    if option.expand is not None and isinstance(value, str):
        value = os.path.abspath(value)
    if isinstance(value, tuple):
        if option.repeatable:
            return [word for one in value for word in (f"--{option.name}", one)]
        value = ",".join(value)
    return [f"--{option.name}", value.flag if isinstance(value, Permission) else str(value)]


def roots_of(plan: Plan, request: Invocation) -> tuple[str, ...]:
    client = plan.client
    if "root" in request.given:
        return tuple(root if root == client.root else os.path.abspath(root) for root in request.settings.root)
    if client.root is not None:
        return (client.root,)
    if plan.scope == "project":
        return (str(plan.places.project),)
    raise SettingsError(
        f"{client.title} does not tell a server which folder is open; name the folder that the tools work "
        "in with --root DIR"
    )


def check_places(plan: Plan, roots: tuple[str, ...], program: str | None) -> None:
    """Reject folders in which tools could change the user's configuration or `program`, the server."""
    file = str(plan.servers.path)
    folders = [root for root in roots if root != plan.client.root]
    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(f"--root {folder} is not a folder")
        if any(_lies_in(str(home), [folder]) for home in (plan.places.home, plan.places.environ["HOME"])):
            raise SettingsError(
                f"--root {folder} contains your home folder, with the keys and the configuration of other "
                "programs; name a folder in it"
            )
    if program is None:
        return
    if plan.scope == "project":
        folders.append(str(plan.places.project))
    elif _lies_in(file, folders):
        raise SettingsError(f"{file} is in a root, where tools could change it; choose another --root")
    if _lies_in(program, folders):
        raise SettingsError(
            f"the program {program} is in a root, where tools could change it; install it "
            "elsewhere, for example with pipx or uv tool, or choose another --root"
        )


def _lies_in(path: str, folders: Sequence[str]) -> bool:
    return is_inside(path, folders) or any(contains(folder, path) for folder in folders)


# --- its program -----------------------------------------------------------------------------------------


def server_command(environ: Mapping[str, str], started_as: str) -> tuple[str, ...]:
    """Return the command, without the server's own flags; `started_as` is `sys.argv[0]`.

    In a temporary environment of `uvx` or `pipx run` it is that program again. Otherwise it is the link
    in the user's folder of programs (`pipx install`, `uv tool install`) if the server was started by it,
    or the program of this Python environment.

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
        return (*_runner("pipx", None, environ), "run", "--spec", _requirement(), PROGRAM)
    script = Path(sys.executable).with_name(PROGRAM)
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
    with suppress(PackageNotFoundError):
        return installed_from(distribution(PROGRAM).read_text("direct_url.json")) or PROGRAM
    return PROGRAM


def installed_from(source: str | None) -> str | None:
    """The file or address in a `direct_url.json` (PEP 610); None for a package from an index."""
    content: dict[str, object] = json.loads(source) if source else {}
    url, repository = content.get("url"), content.get("vcs_info")
    if not isinstance(url, str):
        return None
    return f"git+{url}" if repository else url.removeprefix("file://")


# --- its start -------------------------------------------------------------------------------------------


def listed_tools(command: Sequence[str], root: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the tools that the server lists.

    It runs with no variable but HOME. If its root is the folder that is open in the client, for which
    `root` stands, that is an empty temporary folder; else it runs in `/`.

    Raises:
        SettingsError: the server does not start; the text holds what it says.
    """
    with tempfile.TemporaryDirectory(prefix="mcp-toolserver-") as folder:
        opened = root is not None and root in command
        words = [folder if opened and word == root and root != "." else word for word in command]
        bare = ["/usr/bin/env", "-i", f"HOME={environ['HOME']}", *words]
        cwd = folder if opened else "/"
        # If it fails, `failure_of` returns what the server says.
        with Path(os.devnull).open("w", encoding="utf-8") as nothing:
            with suppress(OSError, TimeoutError, ExceptionGroup, SettingsError):
                return _listed(bare, cwd, nothing)
            if failure := failure_of(bare, cwd):
                raise SettingsError(f"the server does not start as configured: {failure}")
            # What took too long was the installation, which is done now.
            return _listed(bare, cwd, nothing)


def failure_of(command: Sequence[str], cwd: str) -> str:
    """Run a command without input; returns why it failed, and an empty text if it did not."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it did not end within {_SECONDS} s"
    said = ended.stderr.decode(errors="replace").strip().removeprefix("mcp-toolserver: ")
    return (said or f"exit status {ended.returncode}") if ended.returncode else ""


def count_tools(command: Sequence[str], cwd: str, environ: dict[str, str]) -> int:
    """Start a server with the variables in `environ`, and return how many tools it lists.

    Raises:
        SettingsError: it does not list them; the text has the last line that it writes.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        try:
            return len(_listed(command, cwd, errors, environ))
        except (OSError, SettingsError, ExceptionGroup) as error:
            reason = cause(error)
        errors.seek(0)
        said = last_line(errors.read(MAX_BYTES))
    raise SettingsError("; it printed: ".join(filter(None, (reason, said))))


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _listed(
    command: Sequence[str], cwd: str, errors: TextIO, environ: dict[str, str] | None = None
) -> tuple[str, ...]:
    async def connected() -> tuple[str, ...]:
        async with connect(command, cwd=cwd, errors=errors, env=environ) as connection:
            return await connection.tools()

    return anyio.run(connected)
