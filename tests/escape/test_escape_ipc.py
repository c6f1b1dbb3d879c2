"""A confined command reaches no network, no other process, and nothing of the kernel that it could misuse; of
pipes, sockets, devices and locks in folders, only those where it may write.

Each attack of `ipc_probes.txt` is the body of a Python function that returns whether it got through. It runs
through a real server as root in read-only and as an unprivileged user in workspace-write, and on this machine
with no sandbox, where it must get through if the heading above it says so.
"""

import ctypes
import os
import secrets
import shlex
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest

from tests.support.cases import rows
from tests.support.confinement import SECRET, WORKSPACE_WRITE, Servers, put, visible_folder
from tests.support.sessions import each_once

ROOT = os.geteuid() == 0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """An attack, with its body. OSError means that it did not get through."""

    body: str
    free: bool
    """Whether it gets through here with no sandbox."""


def _here(family: int, kind: int, protocol: int) -> bool:
    """Whether this machine makes such sockets for us."""
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return False
    return True


FREE = {
    "everywhere": True,
    "for root": ROOT,
    "with MPTCP": _here(socket.AF_INET, socket.SOCK_STREAM, 262),
    "with ALG": _here(38, 5, 0),
    "with VSOCK": _here(40, socket.SOCK_STREAM, 0),
    "with interfaces": len(socket.if_nameindex()) > 1,
    "nowhere": False,
}
"""Where an attack of the table gets through with no sandbox, and whether that is so here."""
PROBES = {
    name.partition(": ")[2]: Probe(body="\n".join(lines), free=FREE[name.partition(": ")[0]])
    for name, lines in rows(Path(__file__).with_name("ipc_probes.txt"), {}).items()
}


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What the attacks are aimed at; `pid` is a server's."""

    known: dict[str, object]
    datagrams: socket.socket

    def heard(self) -> bool:
        """Whether a datagram came."""
        self.datagrams.setblocking(False)
        try:
            return bool(self.datagrams.recv(16))
        except BlockingIOError:
            return False


START = """
import ctypes, errno, mmap, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
at = {known!r}

def called(x86_64, aarch64):
    # A system call by its number on each machine; it got through unless refused as a whole.
    r = libc.syscall(x86_64 if os.uname().machine == "x86_64" else aarch64, 9999, 0, 0, 0, 0)
    return r >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS)

def tried(name, attempt):
    # In a process of its own: an attack may end the one that makes it.
    child = os.fork()
    if not child:
        try:
            said = "reached" if attempt() else "refused"
        except OSError as error:
            said = "refused " + os.strerror(error.errno or 0)
        print(name, said, flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name, "killed", flush=True)
"""


def script(known: dict[str, object]) -> str:
    """All the attacks, each of which says on a line of its own how it ended."""
    attacks = (
        f"def attempt():\n{indent(probe.body, '    ')}\ntried({name!r}, attempt)\n"
        for name, probe in PROBES.items()
    )
    return START.format(known=known) + "".join(attacks)


@contextmanager
def unix_listener(folder: str) -> Generator[str]:
    """A socket by path that everybody may use."""
    with tempfile.TemporaryDirectory(dir=folder) as place, socket.socket(socket.AF_UNIX) as listener:
        Path(place).chmod(0o755)
        path = f"{place}/socket"
        listener.bind(path)
        Path(path).chmod(0o777)
        listener.listen(64)
        yield path


@pytest.fixture(scope="module")
def targets() -> Generator[Targets]:
    """Services, memory and queues on this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    name, key = f"mcp-test-{secrets.token_hex(6)}", secrets.randbelow(2**30)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        six = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=64))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen(64)
        memory = libc.shmget(key, 4096, 0o1666)
        stack.callback(lambda: libc.shmctl(memory, 0, None))
        one_small_message = (ctypes.c_long * 8)(0, 1, 8)
        queue = libc.mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o666, one_small_message)
        assert min(memory, queue) >= 0
        stack.callback(lambda: (libc.mq_close(queue), libc.mq_unlink(f"/{name}".encode())))
        shared = Path(f"/dev/shm/{name}")
        shared.touch()
        stack.callback(shared.unlink)
        outside = stack.enter_context(visible_folder())
        known: dict[str, object] = {
            "port": listener.getsockname()[1],
            "port6": six.getsockname()[1],
            "udp": datagrams.getsockname()[1],
            "name": name,
            "key": key,
            "secret": SECRET,
            "unseen": stack.enter_context(unix_listener("/tmp")),
            "shm": stack.enter_context(unix_listener("/dev/shm")),
            "run": stack.enter_context(unix_listener("/run" if ROOT else "/tmp")),
            "outside": stack.enter_context(unix_listener(str(outside))),
        }
        yield Targets(known=known, datagrams=datagrams)


def verdicts(said: str, targets: Targets) -> dict[str, str]:
    """How each attack ended. Only the one who should hear a datagram can tell whether it came."""
    lines = said.strip().split("\n")
    found = dict(line.split(" ", 1) for line in lines if not line.startswith("["))
    assert set(found) == set(PROBES), said
    return {**found, "udp": "reached" if targets.heard() else "refused"}


@each_once
def test_a_confined_command_does_not_get_through(
    servers: Servers, targets: Targets, user: str, mode: str
) -> None:
    server = servers(user, mode)
    known = {**targets.known, "pid": server.client.pid}
    found = verdicts(server.bash(f"python3 - <<'END'\n{script(known)}\nEND"), targets)
    assert [name for name, verdict in found.items() if verdict == "reached"] == []


def test_the_same_attack_gets_through_where_nothing_stops_it(targets: Targets, tmp_path: Path) -> None:
    """Aimed at a process like the server."""
    environment = {**os.environ, "SERVER_SECRET": SECRET}
    with subprocess.Popen(["sleep", "60"], env=environment) as bystander:
        try:
            done = subprocess.run(
                [sys.executable, "-c", script({**targets.known, "pid": bystander.pid})],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                encoding="utf-8",
                check=True,
            )
        finally:
            bystander.kill()
    found = verdicts(done.stdout, targets)
    assert [name for name, probe in PROBES.items() if probe.free and found[name] != "reached"] == []


@each_once
def test_a_command_inherits_its_three_streams_and_nothing_else(
    servers: Servers, user: str, mode: str
) -> None:
    said = servers(user, mode).bash(
        "for f in /proc/self/fd/*; do echo $f; done; echo $(exec ls /proc/self/fd)"
    )
    assert said.split("\n")[-2 if said.endswith("\n") else -1].split() == ["0", "1", "2", "3"]


TOUCH = """
import os
for target in (0, 1, "/dev/null", "/dev/zero", "/dev/urandom", "/proc/self/fd/0"):
    try:
        os.utime(target, (86400, 86400))
        os.chmod(target, 0o600)
    except OSError as error:
        print("refused", error.errno)
print(repr(open("/dev/null").read()), os.read(0, 1))
"""
"""Whoever owns a device may change it, and root owns these."""


@each_once
def test_devices_can_be_used_and_not_changed(servers: Servers, user: str, mode: str) -> None:
    devices = ("/dev/null", "/dev/zero", "/dev/urandom")
    before = [os.stat(device) for device in devices]
    # More than one command: the first must leave the devices as the next one needs them.
    for _ in range(2):
        printed = servers(user, mode).bash(f"python3 -c '{TOUCH}'").splitlines()
        assert printed[-1] == "'' b''"
        assert sum(line.startswith("refused") for line in printed) >= 5
    assert [os.stat(device) for device in devices] == before


USE = """
import fcntl, os, socket, sys

def pipe(path):
    os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b"x")

def stream(path):
    socket.socket(socket.AF_UNIX).connect(path)

def datagram(path):
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", path)

def device(path):
    os.open(path, os.O_RDWR)

def kernel(path):
    os.open(path, os.O_WRONLY)

def lock(path):
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)

for path in sys.argv[1:]:
    kind = path.rsplit(".", 1)[-1]
    try:
        globals().get(kind, kernel)(path)
        print("reached", path)
    except OSError as error:
        print("refused", path, error)
"""

KINDS = ("pipe", "stream", "datagram", "device", "lock")

KERNEL = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/mm/ksm/run")
"""Root writes them here; only opened for writing, never written."""

ALWAYS = {"lock"}
"""Reached everywhere: what may be read may be locked. docs/security.md says so."""
WRITABLE = {*ALWAYS, "pipe", "stream", "datagram"}
"""Reached in a folder that a command may write."""


class Specials:
    """Special files of each kind, with what listens at their other ends."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._pipes: dict[Path, int] = {}
        self.paths: list[Path] = []

    def make(self, folder: Path, name: str) -> None:
        """One of each kind, open to everybody, called `name.KIND`."""
        for kind in KINDS:
            path = folder / f"{name}.{kind}"
            if kind == "pipe":
                os.mkfifo(path)
                self._pipes[path] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                self._stack.callback(os.close, self._pipes[path])
            elif kind == "device":
                # A machine may not let its root make devices.
                with suppress(PermissionError):
                    os.mknod(path, stat.S_IFCHR, os.makedev(1, 5))
            elif kind == "lock":
                put(path, "")
            else:
                streams = kind == "stream"
                end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if streams else socket.SOCK_DGRAM)
                self._stack.enter_context(end).bind(str(path))
                if streams:
                    end.listen(64)
            if path.exists():
                path.chmod(0o666)
                self.paths.append(path)
                self._stack.callback(path.unlink)

    def reached(self, lines: str) -> set[str]:
        """Of what a command said, the paths that it reached; a pipe only if something came out of it."""
        said = dict(line.split(" ", 2)[1::-1] for line in lines.splitlines() if " /" in line)
        assert {*map(str, self.paths), *KERNEL} <= {*said}, lines
        for path, end in self._pipes.items():
            try:
                came = os.read(end, 1) == b"x"
            except BlockingIOError:
                came = False
            assert came == (said[str(path)] == "reached"), path
        return {path for path, word in said.items() if word == "reached"}


@contextmanager
def specials() -> Generator[Specials]:
    with ExitStack() as stack:
        yield Specials(stack)


def of_kinds(paths: list[Path], kinds: set[str]) -> Iterator[str]:
    return (str(path) for path in paths if path.suffix[1:] in kinds)


@each_once
def test_special_files_are_reached_only_where_a_command_may_write(
    servers: Servers, user: str, mode: str
) -> None:
    """Each command looks for them anew, so those that were there before the server are no other case."""
    server = servers(user, mode)
    made = server.scene
    with specials() as there:
        for folder in (made.outside, made.home, made.root, made.root / "d"):
            there.make(folder, "special")
        made.own()
        use = f"python3 -I -c {shlex.quote(USE)} {shlex.join([*map(str, there.paths), *KERNEL])}"
        reached = there.reached(server.bash(use))
    inside = [path for path in there.paths if path.is_relative_to(made.root)]
    allowed = WRITABLE if mode == WORKSPACE_WRITE else ALWAYS
    outside = [path for path in there.paths if path not in inside]
    assert reached == {*of_kinds(inside, allowed), *of_kinds(outside, ALWAYS)}


@pytest.mark.skipif(os.geteuid() != 0, reason="most of it takes root")
def test_all_are_reached_where_nothing_stops_it(tmp_path: Path) -> None:
    with specials() as there:
        there.make(tmp_path, "free")
        use = [sys.executable, "-I", "-c", USE, *map(str, there.paths), *KERNEL]
        said = subprocess.run(use, capture_output=True, encoding="utf-8", check=True).stdout
        assert {*map(str, there.paths)} <= there.reached(said)
        assert any(f"reached {path}" in said for path in KERNEL), said
