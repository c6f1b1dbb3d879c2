"""Real servers in their sandbox, as root and unprivileged, and a scene that they must not change.

The scene lies where commands can see it: a temporary folder would be hidden from them, and a write to a place
that they cannot even see proves nothing.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.client import Client, Launch
from mcp_toolserver.runtime.sandbox.layers.environment import command_environment
from mcp_toolserver.runtime.search.executable import find_ripgrep
from tests import ROOT
from tests.support.process_layer import server_command
from tests.support.snapshot import Snapshot, differences, snapshot

NOBODY = 65534
USERS = ("root", "unprivileged") if os.geteuid() == 0 else ("unprivileged",)
BY_USER = [pytest.param(user, id=user, marks=pytest.mark.xdist_group(user)) for user in USERS]
"""One process of the test runner runs all tests of a file for a user, so that they share servers."""

_FOR_ONE = {
    gate: [
        pytest.param(
            user,
            id=user,
            marks=[pytest.mark.xdist_group(user), *([pytest.mark.long] if user != gate else [])],
        )
        for user in USERS
    ]
    for gate in USERS
}

AS_ROOT_IN_LONG = _FOR_ONE[USERS[-1]]
"""For tests of features, which hardly depend on who runs the server."""

AS_UNPRIVILEGED_IN_LONG = _FOR_ONE[USERS[0]]
"""For tests of the sandbox where root, whom no file mode stops, is the harder one to hold."""

READ_ONLY, WORKSPACE_WRITE, FULL = "read-only", "workspace-write", "danger-full-access"
PROTECTED_GIT = f"{WORKSPACE_WRITE} --git protected"
CONFINED = (READ_ONLY, WORKSPACE_WRITE)

by_user = pytest.mark.parametrize("user", BY_USER)

VISIBLE = ("/srv", "/opt", "/var/lib", str(Path.home()))
"""Where commands can see what lies there."""

RIPGREP = find_ripgrep(os.environ["PATH"].split(os.pathsep)) or "/bin/false"

SECRET = "a-secret-of-the-server"

EVIL = '#!/bin/sh\ntouch "$(dirname "$0")/evil-ran"\n'
"""It leaves a mark in its own folder."""


class Scene:
    """A folder to work in, and what lies around it."""

    def __init__(self, *, base: Path, user: str) -> None:
        self.base, self.user = base, user
        self.root, self.outside = base / "root", base / "outside"
        self.home, self.state = base / "home", base / "state"

    def spelt(self, script: str) -> str:
        """`script` with the outside folder in the place of `$O`."""
        return script.replace("$O", str(self.outside))

    def seen(self) -> Snapshot:
        """All that read-only must leave as it is."""
        return snapshot(self.root, self.outside, self.home)

    def around(self) -> Snapshot:
        """All that workspace-write must leave as it is."""
        return snapshot(self.base, without=[self.root, self.state, self.base / "run"])

    @property
    def environment(self) -> dict[str, str]:
        """Of the server: with a secret, and with what makes `less` run a program."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MCP_TOOLSERVER_", "COVERAGE_", "COV_", "TMPDIR"))
        }
        return {
            **inherited,
            "HOME": str(self.home),
            "USER": "nobody" if self.user == "unprivileged" else "root",
            "LESSOPEN": "|./evil.sh %s",
            "SERVER_SECRET": SECRET,
        }

    def own(self) -> None:
        """Give everything to the user who works here."""
        if self.user == "unprivileged" and os.geteuid() == 0:
            for folder, folders, files in os.walk(self.base):
                for name in (".", *folders, *files):
                    os.lchown(os.path.join(folder, name), NOBODY, NOBODY)


@contextmanager
def visible_folder() -> Generator[Path]:
    """A temporary folder that commands can see."""
    place = next(path for path in VISIBLE if os.access(path, os.W_OK))
    folder = Path(tempfile.mkdtemp(prefix="mcp-toolserver-test-", dir=place))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def git(folder: Path, *arguments: str, **more: str) -> str:
    """Run git as the scene is built; `more` is its environment besides."""
    command = ["git", "-C", str(folder), "-c", "gc.auto=0", "-c", "safe.directory=*", *arguments]
    environment = git_environment(**more)
    done = subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8")
    return done.stdout


def git_environment(**more: str) -> dict[str, str]:
    """That of git as scenes are built, and `more`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "A"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@example.com"),
        **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-02T03:04:05Z"),
        **more,
    }


@contextmanager
def scene(user: str) -> Generator[Scene]:
    """A repository with history, links, a FIFO, attributes and traps, and folders around it."""
    with visible_folder() as base:
        made = Scene(base=base, user=user)
        for folder in (made.root, made.outside, made.home, made.state, base / "run"):
            folder.mkdir()
        made.state.chmod(0o700)
        for name in ("target", "x", "kept"):
            put(made.outside / name, "outside\n")
        for name in (".bashrc", ".profile", ".gitconfig"):
            put(made.home / name, "# at home\n")
        put(made.home / ".config/plain", "at home\n")
        _workspace(made.root)
        # The one of the environment may lie where commands see nothing.
        shutil.copy(RIPGREP, base / "run/rg")
        made.own()
        yield made


def _workspace(root: Path) -> None:
    # Run by a shell, `f` removes `g`; the line `o` is there for substitutions.
    put(root / "f", "rm g\no\nhello\n")
    put(root / "g", "x\nc\na\nb\na\n")
    put(root / "d/tracked", "tracked\n")
    put(root / "d/nested/deep", "deep\n")
    put(root / "magic", "0 string x a file of ours\n")
    put(root / "data.json", '{"name": "value", "list": [1, 2, 3]}\n')
    put(root / ".mcp.json", "{}\n")
    put(root / ".vscode/settings.json", "{}\n")
    put(root / "evil.sh", EVIL).chmod(0o755)
    put(root / "ls", EVIL).chmod(0o755)
    subprocess.run(["tar", "-C", str(root), "-cf", str(root / "a.tar"), "f", "g"], check=True)
    _repository(root)
    _repository(root / "hostile", **{"core.fsmonitor": "./evil.sh", "diff.external": "./evil.sh"})
    put(root / "d/tracked", "tracked\nand changed\n")
    put(root / "hostile/tracked", "tracked\nand changed\n")
    os.link(root / "g", root / "d/hard")
    (root / "link_out").symlink_to("../outside/target")
    (root / "link_in").symlink_to("d/tracked")
    (root / "link_nowhere").symlink_to("missing")
    os.mkfifo(root / "fifo")
    os.setxattr(root / "f", "user.note", b"noted")


def _repository(folder: Path, **config: str) -> None:
    put(folder / "tracked", "tracked\n")
    put(folder / "evil.sh", EVIL).chmod(0o755)
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    (folder / ".gitignore").write_text("hostile/\nhome/\nignored\n", encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    put(folder / "tracked", "tracked\nsecond\n")
    git(folder, "commit", "--quiet", "--all", "--message=second")
    git(folder, "tag", "v1", "HEAD~1")
    git(folder, "branch", "other", "HEAD~1")
    for name, value in {"user.name": "A", "user.email": "a@example.com", **config}.items():
        git(folder, "config", name, value)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@dataclass(frozen=True)
class Said:
    text: str
    is_error: bool


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server and the scene it works in."""

    scene: Scene
    client: Client
    mode: str
    flags: tuple[str, ...] = ()

    def call(self, tool: str, **arguments: Any) -> Said:
        result = self.client.request("tools/call", {"name": tool, "arguments": arguments}).result
        parts = [part["text"] for part in result["content"] if part["type"] == "text"]
        return Said("\n".join(parts), bool(result.get("isError")))

    def bash(self, script: str, **arguments: Any) -> str:
        """What a command printed. That it ran at all is asserted: a refusal would prove nothing."""
        said = self.call("bash", command=self.scene.spelt(script), **arguments)
        assert not said.is_error, said.text
        return said.text

    def start(self, script: str) -> str:
        """Start a command in the background; its handle."""
        said = self.call("bash", command=script, run_in_background=True).text
        found = re.search(r"bg_\w+", said)
        assert found is not None, said
        return found[0]

    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.client.request("tools/list", {}).result["tools"]}


Servers = Callable[[str, str], Server]
"""Gives the shared server of a user and mode: the fixture `servers`."""


@contextmanager
def serving(
    of: Scene,
    mode: str,
    *flags: str,
    roots: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
    around: Sequence[str] = (),
) -> Generator[Server]:
    """A server as the scene's user; `around` is a command line that ends with running its arguments."""
    arguments = [word for root in roots or (of.root,) for word in ("--root", str(root))]
    command = [
        *as_user(of), *around, *server_command(), "--permission-mode", mode,
        *arguments, "--state-dir", str(of.state), "--toolsets", "all", *flags,
    ]  # fmt: skip
    launch = Launch(command=command, cwd=ROOT, environment={**of.environment, **(environ or {})})
    with Client(launch) as client:
        yield Server(scene=of, client=client, mode=mode, flags=flags)


AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def as_user(of: Scene) -> tuple[str, ...]:
    """What goes before a command for it to run as the user of the scene.

    The interpreter may lie in a home folder that nobody else may enter. Such folders are replaced, for that
    process alone, by ones that hold only what it takes to run the server.
    """
    if of.user == "root" or os.geteuid() != 0:
        return ()
    needed = [Path(path) for path in dict.fromkeys((sys.base_prefix, sys.prefix, str(ROOT)))]
    closed = {path: folder for path in needed if (folder := _closed_to_others(path))}
    aside = {path: of.base.parent / f"{of.base.name}/run/{number}" for number, path in enumerate(closed)}
    for path in aside.values():
        path.mkdir(parents=True, exist_ok=True)
    steps = [
        *(f"mount --bind {path} {place}" for path, place in aside.items()),
        *(f"mount -t tmpfs -o mode=755 tmpfs {folder}" for folder in dict.fromkeys(closed.values())),
        *(f"mkdir -p {path} && mount --move {place} {path}" for path, place in aside.items()),
        f"cd {ROOT}",
        'exec "$@"',
    ]
    return ("unshare", "--mount", "sh", "-c", " && ".join(steps), "sh", *AS_NOBODY)


def _closed_to_others(path: Path) -> Path | None:
    """The uppermost folder on the way to `path` that not everybody may enter."""
    way = [*reversed(path.parents), path]
    return next((folder for folder in way if not folder.stat().st_mode & stat.S_IXOTH), None)


@contextmanager
def copy_of(of: Scene, folder: Path) -> Generator[Scene]:
    """Another scene just like this one, to be damaged."""
    base = folder / "copy"
    base.mkdir()
    subprocess.run(["cp", "--archive", of.root, of.outside, of.home, of.state, base], check=True)
    try:
        yield Scene(base=base, user=of.user)
    finally:
        shutil.rmtree(base)


def free(at: Scene, script: str, cwd: str = ".") -> subprocess.CompletedProcess[str]:
    """Run a command in a scene that may be damaged, with no sandbox."""
    environment = {**command_environment(at.environment), "LESSOPEN": at.environment["LESSOPEN"]}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", at.spelt(script)],
        cwd=at.root / cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        encoding="utf-8",
        timeout=20,
        check=False,
    )


def changed(before: Snapshot, after: Snapshot) -> str:
    """The difference as text, empty when there is none; made for `assert not`."""
    return "\n".join(differences(before, after))


@contextmanager
def servers_when_needed() -> Generator[Servers]:
    """A server for each user and mode, which may have flags after it, started when it is first asked for."""
    with ExitStack() as stack:
        started: dict[tuple[str, str], Server] = {}

        def server(user: str, mode: str) -> Server:
            if (user, mode) not in started:
                made = stack.enter_context(scene(user))
                started[user, mode] = stack.enter_context(serving(made, *shlex.split(mode)))
            return started[user, mode]

        yield server
