"""What a process tries, each attempt a function that raises what went wrong.

The tests name them; `tests.sandbox.locked` runs them in an interpreter of its own.
"""

import concurrent.futures.thread
import ctypes
import encodings.ascii
import encodings.idna
import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.seccomp import EXECUTES, MACHINES

PRELOADED = (encodings.ascii, encodings.idna, concurrent.futures.thread)
"""Needed after a change of user, who may not be able to read the interpreter's own files."""

DONE = "done"


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

OUTSIDER_SECRET = "OUTSIDER_SECRET=4711"


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


def environ_of_outsider(scene: Scene) -> None:
    assert OUTSIDER_SECRET in Path(f"/proc/{scene.outsider}/environ").read_text(encoding="utf-8")


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


def change_open_mode(scene: Scene) -> None:
    with open(scene.private / "old", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o640)


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
    cat = shutil.which("cat") or "/bin/cat"
    _in_fork(lambda: os.execv(cat, [cat, str(scene.workspace / "old")]))


SIMPLE: Mapping[str, Callable[[Scene], object]] = {
    "look_up": lambda _: socket.getaddrinfo("localhost", 80),
    "netlink": lambda _: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close(),
    "signal_outsider": lambda scene: os.kill(scene.outsider, 0),
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
