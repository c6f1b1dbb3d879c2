"""What a process tries behind a lock, and without one: each attempt by name, in an interpreter of its own.

An attempt is a function that raises what went wrong. `outcomes` is for the tests; the child becomes a user,
starts an outsider to attack, holds itself, tries everything and prints what came of it.
"""

import concurrent.futures.thread
import ctypes
import encodings.ascii
import encodings.idna
import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.models import model
from mcp_toolserver.runtime.sandbox.layers import kernel, landlock, process_locks
from mcp_toolserver.runtime.sandbox.layers.seccomp import EXECUTES, MACHINES
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.support.snapshot import differences, snapshot

PRELOADED = (encodings.ascii, encodings.idna, concurrent.futures.thread, model)
"""Needed after a change of user, who may not be able to read the interpreter's own files."""

NOBODY = 65534
USERS = ["root", "nobody"] if os.geteuid() == 0 else ["nobody"]
"""Root becomes nobody for its second half; anybody else is nobody enough."""

DONE = "done"
CAT = shutil.which("cat") or "/bin/cat"

NEEDS_ROOT = frozenset({"core_pattern", "device_file"})
"""Attempts that some systems refuse to everybody but root."""

OUTSIDE_WRITES = (
    *("write_outside", "create_outside", "unlink_outside", "rename_out", "link_in"),
    *("make_folder_outside", "make_link_outside", "make_fifo_outside", "truncate_outside"),
    "reopen_outside",
)
METADATA = (
    *("change_mode", "change_open_mode", "change_owner", "change_times", "change_attribute"),
    "change_flags",
)


class Scene:
    """What attempts work on."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.top = Path(said["top"])
        self.workspace, self.outside, self.private = (
            self.top / name for name in ("workspace", "outside", "private")
        )
        self.tcp: int = said.get("tcp", 0)
        self.udp: int = said.get("udp", 0)
        self.abstract: str = said.get("abstract", "")
        self.folder = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY)
        self.readable = os.open(self.outside / "old", os.O_RDONLY)
        self.private_old = os.open(self.private / "old", os.O_RDONLY)
        self.column, _ = MACHINES[os.uname().machine]
        self.outsider = 0


def outcome(attempt: Callable[[Scene], object], scene: Scene) -> str:
    """ "done", or the name of the error that an attempt ended with."""
    try:
        attempt(scene)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
        return repr(error)
    return DONE


def attempt(name: str) -> Callable[[Scene], object]:
    return SIMPLE.get(name) or globals()[name]


def tcp(scene: Scene) -> None:
    with socket.socket() as ours:
        ours.connect(("127.0.0.1", scene.tcp))


def udp(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.sendto(b"x", ("127.0.0.1", scene.udp))


def listen_unbound(_: Scene) -> None:
    with socket.socket() as ours:
        ours.listen()


def unix_stream(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(str(scene.top / "stream"))


def abstract(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect("\0" + scene.abstract)


def stream_pair(_: Scene) -> None:
    ours, other = socket.socketpair()
    with ours, other:
        ours.send(b"x")
        assert other.recv(1) == b"x"


def shared_memory(_: Scene) -> None:
    segment = _library("shmget", 0, 4096, 0o1600)
    _library("shmctl", segment, 0, None)


def dev_shm(_: Scene) -> None:
    path = Path(f"/dev/shm/locked-{os.getpid()}")
    path.touch()
    path.unlink()


def execute(_: Scene) -> None:
    true = shutil.which("true") or "/bin/true"
    _in_fork(lambda: os.execv(true, [true]))


def execute_handle(scene: Scene) -> None:
    """Through a descriptor of an anonymous file, which is nowhere in the file system."""
    file = os.memfd_create("program")
    os.write(file, Path(shutil.which("true") or "/bin/true").read_bytes())
    words = (ctypes.c_char_p * 2)(b"true", None)
    number, at_empty_path = EXECUTES["execveat"][scene.column], 0x1000
    assert number is not None
    _in_fork(
        lambda: kernel.system_call(number, file, b"", *[ctypes.addressof(words)] * 2, at_empty_path),
    )


def no_powers(_: Scene) -> None:
    """Neither here nor in a program that is started."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    held = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    assert int(held.split()[1], 16) == 0, held


def no_powers_after_exec(_: Scene) -> None:
    sh = shutil.which("sh") or "/bin/sh"
    test = "grep -q '^CapEff:.0*$' /proc/self/status && grep -q '^CapPrm:.0*$' /proc/self/status"
    _in_fork(lambda: os.execv(sh, [sh, "-c", test]))


def unlink_outside(scene: Scene) -> None:
    (scene.outside / "victim").unlink()
    (scene.outside / "victim").touch()


def rename_out(scene: Scene) -> None:
    (scene.workspace / "victim").rename(scene.outside / "victim2")
    (scene.workspace / "victim").touch()


def link_in(scene: Scene) -> None:
    os.link(scene.outside / "old", scene.workspace / "linked")
    (scene.workspace / "linked").unlink()


def read_workspace(scene: Scene) -> None:
    (scene.workspace / "old").read_text(encoding="utf-8")
    os.listdir(scene.workspace)


def write_workspace(scene: Scene) -> None:
    (scene.workspace / "old").write_text("changed", encoding="utf-8")
    (scene.workspace / "new").touch()
    (scene.workspace / "new").rename(scene.workspace / "newer")
    (scene.workspace / "newer").unlink()


def move_between_folders(scene: Scene) -> None:
    (scene.private / "a").mkdir(exist_ok=True)
    (scene.private / "a" / "file").touch()
    (scene.private / "a" / "file").rename(scene.private / "file")


def device_file(scene: Scene) -> None:
    where = scene.private / "device"
    os.mknod(where, 0o60600, os.makedev(7, 0))
    where.unlink()


def gain_by_set_user_id(scene: Scene) -> None:
    """A program of root's that takes root's rights with it."""
    program = str(scene.top / "set-user-id")
    output = os.memfd_create("output", 0)

    def run() -> None:
        os.dup2(output, 1)
        os.execv(program, [program, "-u"])

    _in_fork(run)
    if os.pread(output, 100, 0).strip() != b"0":
        raise PermissionError(errno.EPERM, "it ran without them")


def read_program(scene: Scene) -> None:
    """Another program reads from the workspace; dynamic libraries and all."""
    _in_fork(lambda: os.execv(CAT, [CAT, str(scene.workspace / "old")]))


SIMPLE: Mapping[str, Callable[[Scene], object]] = {
    "look_up": lambda _: socket.getaddrinfo("localhost", 80),
    "netlink": lambda _: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close(),
    "signal_outsider": lambda scene: os.kill(scene.outsider, 0),
    "environ_of_outsider": lambda scene: Path(f"/proc/{scene.outsider}/environ").read_text(encoding="utf-8"),
    "memory_of_outsider": lambda scene: os.close(os.open(f"/proc/{scene.outsider}/mem", os.O_RDONLY)),
    "write_outside": lambda scene: (scene.outside / "old").write_text("changed", encoding="utf-8"),
    "create_outside": lambda scene: (scene.outside / "new").touch(),
    "make_folder_outside": lambda scene: (scene.outside / "folder").mkdir(),
    "make_link_outside": lambda scene: (scene.outside / "symbolic").symlink_to("old"),
    "make_fifo_outside": lambda scene: os.mkfifo(scene.outside / "fifo"),
    "truncate_outside": lambda scene: os.truncate(scene.outside / "old", 0),
    "truncate_workspace": lambda scene: os.truncate(scene.workspace / "old", 0),
    "reopen_outside": lambda scene: os.close(os.open(f"/proc/self/fd/{scene.readable}", os.O_WRONLY)),
    "read_outside": lambda scene: (scene.outside / "old").read_text(encoding="utf-8"),
    "list_outside": lambda scene: os.listdir(scene.outside),
    "read_hidden": lambda scene: (scene.top / "hidden" / "secret").read_text(encoding="utf-8"),
    "list_hidden": lambda scene: os.listdir(scene.top / "hidden"),
    "write_hidden": lambda scene: (scene.top / "hidden" / "secret").write_text("changed", encoding="utf-8"),
    # Disks are among them, with all that is on them.
    "list_devices": lambda _: os.listdir("/dev"),
    "write_private": lambda scene: (scene.private / "new").write_text("new", encoding="utf-8"),
    "dev_null": lambda _: Path("/dev/null").write_text("nothing", encoding="utf-8"),
    "core_pattern": lambda _: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
    "change_open_mode": lambda scene: os.fchmod(scene.private_old, 0o640),
    "change_mode": lambda scene: os.chmod(scene.private / "old", 0o640),
    "change_owner": lambda scene: os.chown(scene.private / "old", os.geteuid(), os.getegid()),
    "change_times": lambda scene: os.utime(scene.private / "old", (1, 1)),
    "change_attribute": lambda scene: os.setxattr(scene.private / "old", "user.locked", b"1"),
    "change_flags": lambda _: _on_no_file(0x40086602),
}


def _library(name: str, *arguments: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(getattr(libc, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def _on_no_file(command: int) -> None:
    """A command for a descriptor that is not open: the filter comes before that is seen."""
    try:
        fcntl.ioctl(1 << 20, command, 0)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


def _in_fork(attempt: Callable[[], object]) -> None:
    """Try what changes the process itself, and raise what it raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            attempt()
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 100)
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if said:
        raise OSError(int(said), "in a fork")
    assert status == 0, f"exit status {status}"


START = """
import json
from tests.sandbox.attempts import child
child(json.loads(sys.argv[1]))
"""


@contextmanager
def stage(user: str) -> Generator[Path]:
    """Folders that `user` owns, outside of what the test runner keeps for itself."""
    with TemporaryDirectory(prefix="locked-") as folder:
        top = Path(folder)
        for name in ("workspace", "outside", "private"):
            (top / name).mkdir()
            (top / name / "old").write_text(name, encoding="utf-8")
            (top / name / "victim").write_text(name, encoding="utf-8")
        (top / "hidden").mkdir()
        (top / "hidden" / "secret").write_text("secret", encoding="utf-8")
        if user == "nobody" and os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        shutil.copy(shutil.which("id") or "/usr/bin/id", top / "set-user-id")
        (top / "set-user-id").chmod(0o4755)
        yield top


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
        found = json.loads(python(START, json.dumps(said)))
        changed = {name: differences(before[name], snapshot(*watched[name])) for name in watched if lock}
        return {**found, **{name: "\n".join(lines) for name, lines in changed.items()}}


def python(code: str, *arguments: str) -> str:
    """Run `code`, which may import from the repository; what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}", *arguments],
        env={"PATH": os.defpath},
        cwd="/",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
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
    found = {name: outcome(attempt(name), scene) for name in said["attempts"]}
    if said["worker"]:
        with ThreadPoolExecutor(1) as pool:
            tried = [pool.submit(outcome, attempt(name), scene) for name in said["worker"]]
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
        os.execve(CAT, [CAT], {"SECRET": "4711"})
    os.close(telling)
    os.close(ending)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _lock_server(scene: Scene, mode: str, network: str = "none") -> None:
    permission = next(one for one in Permission if one.flag == mode)
    places = {"root": (str(scene.workspace),), "state_dir": str(scene.private)}
    confinement.lock_server(Settings(permission_mode=permission, network=network, **places))


def _lock_command(scene: Scene, writable: bool = False, network: bool = False) -> None:
    process_locks.lock_command(
        "workspace-write" if writable else "read-only",
        roots=[str(scene.workspace)],
        writes=[str(scene.private)],
        hidden=[str(scene.top / "hidden")],
        network=network,
    )


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
    "helper": lambda scene: process_locks.lock_helper(scene.folder, [os.path.realpath(CAT)]),
    "proxy": lambda _: process_locks.lock_proxy(),
    "landlock": _landlock_only,
    "places": _places,
}
