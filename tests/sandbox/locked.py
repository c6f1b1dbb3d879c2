"""What a process tries behind a lock, and without one: each attempt by name, in an interpreter of its own.

`outcomes` is for the tests. The rest runs in the child: it becomes a user, starts an outsider to attack,
holds itself, tries everything and prints what came of it.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.models import model
from mcp_toolserver.runtime.sandbox.layers import kernel, landlock, process_locks
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.sandbox import attempts
from tests.sandbox.attempts import OUTSIDER_SECRET, Scene, outcome
from tests.support.snapshot import differences, snapshot

REPOSITORY = str(ROOT)
NOBODY = 65534
USERS = ["root", "nobody"] if os.geteuid() == 0 else ["nobody"]
"""Root becomes nobody for its second half; anybody else is nobody enough."""

PRELOADED = (model,)
"""Needed after a change of user, like those of `attempts`."""

START = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.sandbox.locked import child
child(json.loads(sys.argv[2]))
"""


@contextmanager
def stage(user: str) -> Generator[Path]:
    """Folders that `user` owns, outside of what the test runner keeps for itself."""
    top = Path(tempfile.mkdtemp(prefix="locked-"))
    try:
        for name in ("workspace", "outside", "private"):
            (top / name).mkdir()
            (top / name / "old").write_text(name, encoding="utf-8")
            (top / name / "victim").write_text(name, encoding="utf-8")
        (top / "hidden").mkdir()
        (top / "hidden" / "secret").write_text("secret", encoding="utf-8")
        if user == "nobody" and os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        shutil.copy(shutil.which("id") or "/usr/bin/id", top / "set-user-id")
        (top / "set-user-id").chmod(0o4755)
        yield top
    finally:
        shutil.rmtree(top)


@contextmanager
def neighbours(top: Path) -> Generator[dict[str, Any]]:
    """Services of the machine that a process may try to reach."""
    with ExitStack() as closing:

        def listening(family: int, kind: int, address: Any) -> socket.socket:
            service = closing.enter_context(socket.socket(family, kind))
            service.bind(address)
            if kind == socket.SOCK_STREAM:
                service.listen()
            return service

        tcp = listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        listening(socket.AF_UNIX, socket.SOCK_STREAM, str(top / "stream"))
        listening(socket.AF_UNIX, socket.SOCK_DGRAM, str(top / "datagram"))
        for name in ("stream", "datagram"):
            (top / name).chmod(0o777)
        abstract = f"\0locked-{os.getpid()}-{top.name}"
        listening(socket.AF_UNIX, socket.SOCK_STREAM, abstract)
        yield {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "abstract": abstract[1:]}


def outcomes(
    user: str, lock: dict[str, Any] | None, names: Sequence[str], *, worker: Sequence[str] = ()
) -> dict[str, str]:
    """What came of each attempt: "done", or the name of the error. `lock` names one of `LOCKS`.

    A thread that starts after the lock makes the attempts of `worker` once more. For a lock, "workspace" and
    "outside" say what changed there.
    """
    with stage(user) as top, neighbours(top) as reach:
        watched = {"workspace": [top / "workspace"], "outside": [top / "outside", top / "hidden"]}
        before = {name: snapshot(*folders) for name, folders in watched.items()}
        said = {"user": user, "lock": lock, "attempts": names, "worker": worker, "top": str(top), **reach}
        found = run(said)
        changed = {name: differences(before[name], snapshot(*watched[name])) for name in watched if lock}
        return {**found, **{name: "\n".join(lines) for name, lines in changed.items()}}


def run(said: dict[str, Any]) -> dict[str, str]:
    """Run a child; what it printed."""
    return json.loads(python(START, json.dumps(said)))


def python(code: str, *arguments: str, fails: bool = False) -> str:
    """Run `code`, which finds the repository as its first argument; what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", code, REPOSITORY, *arguments],
        env={"PATH": os.defpath},
        cwd="/",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert fails or ended.returncode == 0, ended.stderr
    return ended.stdout


def child(said: dict[str, Any]) -> None:
    """Become who `said` says, start an outsider, lock, try."""
    if said["user"] == "nobody" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    scene = Scene(said)
    scene.outsider = _outsider()
    if said["lock"]:
        lock = dict(said["lock"])
        LOCKS[lock.pop("name")](scene, **lock)
    found = {name: outcome(attempts.attempt(name), scene) for name in said["attempts"]}
    if said["worker"]:
        with ThreadPoolExecutor(1) as pool:
            tried = [pool.submit(outcome, attempts.attempt(name), scene) for name in said["worker"]]
        found |= {
            f"{name} in a worker": one.result() for name, one in zip(said["worker"], tried, strict=True)
        }
    print(json.dumps(found), flush=True)
    os._exit(0)


def _outsider() -> int:
    """A process of the same user that is not held; it ends when this one closes its pipe.

    No signal would end it: from a process whose signals are scoped, none reaches it, at its death neither.
    """
    ready, telling = os.pipe()
    ending, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        os.dup2(ending, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        cat = shutil.which("cat") or "/bin/cat"
        name, _, value = OUTSIDER_SECRET.partition("=")
        os.execve(cat, [cat], {name: value})
    os.close(telling)
    os.close(ending)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _lock_server(scene: Scene, mode: str, network: str = "none") -> None:
    permission = next(one for one in Permission if one.flag == mode)
    confinement.lock_server(
        Settings(
            permission_mode=permission,
            root=(str(scene.workspace),),
            state_dir=str(scene.private),
            network=network,
        )
    )


def _lock_command(scene: Scene, writable: bool = False, network: bool = False) -> None:
    process_locks.lock_command(
        "workspace-write" if writable else "read-only",
        roots=[str(scene.workspace)],
        writes=[str(scene.private)],
        hidden=[str(scene.top / "hidden")],
        network=network,
    )


def _lock_helper(scene: Scene) -> None:
    cat = os.path.realpath(shutil.which("cat") or "/bin/cat")
    process_locks.lock_helper(scene.folder, [cat])


def _lock_proxy(_: Scene) -> None:
    process_locks.lock_proxy()


def _landlock_only(scene: Scene, abi: int) -> None:
    """As on a kernel whose Landlock has version `abi`."""
    usable = min(abi, landlock.abi())
    landlock.abi = lambda: usable
    landlock.restrict(landlock.Rules(executes=("/",), writes=(str(scene.private),)))


def _places(scene: Scene, **given: list[str]) -> None:
    """Landlock with rules for places in `top`, one of which is an open folder, and one a link to it."""
    (scene.top / "link").symlink_to("workspace")
    places: dict[str, Any] = {
        right: tuple(scene.folder if name == "descriptor" else str(scene.top / name) for name in names)
        for right, names in given.items()
    }
    landlock.restrict(landlock.Rules(**places))


LOCKS: dict[str, Callable[..., None]] = {
    "server": _lock_server,
    "command": _lock_command,
    "helper": _lock_helper,
    "proxy": _lock_proxy,
    "landlock": _landlock_only,
    "places": _places,
}
