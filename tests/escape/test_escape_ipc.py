"""A confined command reaches no network, no other process, and nothing of the kernel that it could misuse.

Each attack is a few lines of Python that print `reached` or `refused`. It runs through a real server in both
confined modes, as root and as an unprivileged user, and on this machine with no sandbox, where it must reach.
"""

import ctypes
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.confinement import (
    BY_USER,
    READ_ONLY,
    SECRET,
    USERS,
    WORKSPACE_WRITE,
    Server,
    scene,
)
from tests.support.sessions import each_once

MODES = (READ_ONLY, WORKSPACE_WRITE)
ROOT = os.geteuid() == 0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """An attack: the body of a function that returns whether it got through. OSError means it did not."""

    body: str
    free: bool = True
    """Whether it gets through here with no sandbox; not where the machine lacks what is attacked."""


def _needs_root(body: str) -> Probe:
    return Probe(body=body, free=ROOT)


def _here(family: int, kind: int, protocol: int) -> bool:
    """Whether this machine makes such sockets for us."""
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return False
    return True


def _call(*numbers: int) -> str:
    """A system call by its number on x86_64 and on aarch64; it got through unless refused as a whole."""
    return (
        f"n = {{'x86_64': {numbers[0]}, 'aarch64': {numbers[1]}}}[os.uname().machine]\n"
        "r = libc.syscall(n, 9999, 0, 0, 0, 0)\n"
        "return r >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS)"
    )


MPTCP, ALG, VSOCK, NETLINK, PACKET = 262, 38, 40, 16, 17
STREAM, DATAGRAM, RAW = 1, 2, 3

PROBES = {
    "NETIPC01": Probe(body="socket.create_connection(('127.0.0.1', at['port']), 2); return True"),
    "NETIPC01-six": Probe(body="socket.create_connection(('::1', at['port6']), 2); return True"),
    "fast-open": Probe(
        body="s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', at['port'])); return True"
    ),
    "NETIPC03": Probe(
        body="s = socket.socket(2, 1, 262); s.connect(('127.0.0.1', at['port'])); return True",
        free=_here(socket.AF_INET, STREAM, MPTCP),
    ),
    "udp": Probe(body="s = socket.socket(2, 2); s.sendto(b'x', ('127.0.0.1', at['udp'])); return True"),
    "NETIPC05": _needs_root("socket.socket(2, 3, 1); return True"),
    "NETIPC07": Probe(body="socket.socket(16, 3, 15); return True"),
    # Of the machine's interfaces, routes and listeners a command sees nothing.
    "NETIPC07-routes": Probe(
        body="return [name for _, name in socket.if_nameindex()] != ['lo']",
        free=len(socket.if_nameindex()) > 1,
    ),
    "listeners": Probe(body="return f\"{at['port']:04X}\" in open('/proc/net/tcp').read()"),
    "NETIPC07-packet": _needs_root("socket.socket(17, 3, 768); return True"),
    "NETIPC07-alg": Probe(body="socket.socket(38, 5, 0); return True", free=_here(ALG, 5, 0)),
    "vsock": Probe(body="socket.socket(40, 1, 0); return True", free=_here(VSOCK, STREAM, 0)),
    "NETIPC08": Probe(body="socket.socket(1).connect(at['unseen']); return True"),
    "NETIPC08-shm": Probe(body="socket.socket(1).connect(at['shm']); return True"),
    "NETIPC08-run": Probe(body="socket.socket(1).connect(at['run']); return True", free=ROOT),
    "NETIPC08-outside": Probe(body="socket.socket(1).connect(at['outside']); return True"),
    "PERS19": Probe(
        body="return any(os.path.lexists(p) for p in ('/run/systemd', '/run/dbus', at['run'])) "
        "or bool(os.listdir('/run')) and os.access('/run', os.W_OK)",
        free=ROOT,
    ),
    "abstract": Probe(body="socket.socket(1).connect('\\0' + at['name']); return True"),
    "NETIPC10": Probe(body="os.kill(at['pid'], 0); return True"),
    "NETIPC10-all": Probe(body="return str(at['pid']) in os.listdir('/proc')"),
    "priority": Probe(body="os.setpriority(0, at['pid'], os.getpriority(0, at['pid'])); return True"),
    "NETIPC12": Probe(body="return libc.shmget(at['key'], 0, 0) >= 0"),
    "NETIPC13": Probe(body="return os.path.exists('/dev/shm/' + at['name'])"),
    "NETIPC13-mq": Probe(body="return libc.mq_open(b'/' + at['name'].encode(), 0) >= 0", free=True),
    "NETIPC18": Probe(body="return 'NoNewPrivs:\\t1' not in open('/proc/self/status').read()"),
    "capabilities": Probe(
        body="return any(int(l.split()[1], 16) for l in open('/proc/self/status') if l.startswith('Cap'))",
        free=ROOT,
    ),
    "NETIPC19": _needs_root(_call(321, 280)),
    "NETIPC19-perf": Probe(body=_call(298, 241), free=ROOT),
    "NETIPC19-userfaultfd": Probe(body=_call(323, 282), free=ROOT),
    "io-uring": Probe(body=_call(425, 425), free=False),
    "keyring": Probe(body=_call(250, 219), free=True),
    "namespace": Probe(body="return libc.unshare(0x10000000) == 0", free=ROOT),
    # Without a sandbox it would change the mounts of this machine.
    "mount": Probe(body="return libc.mount(b'none', b'/', b'', 1 << 18, None) == 0", free=False),
    "NETIPC20": Probe(body="return libc.syscall(0x40000000 | 39) > 0", free=False),
    "NETIPC20-i386": Probe(
        body="if os.uname().machine != 'x86_64': return False\n"
        "m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b814000000cd80c3'))\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "p = os.fork()\n"
        "if not p: os._exit(0 if f() == os.getpid() else 1)\n"
        "return os.waitpid(p, 0)[1] == 0",
        free=False,
    ),
    "PROC01": Probe(body="return at['secret'] in open('/proc/self/environ').read()"),
    "PROC01-above": Probe(
        body="return any(at['secret'] in open(f'/proc/{p}/environ').read() for p in (1, os.getppid()))",
        free=False,
    ),
    "PROC02": Probe(body="return at['secret'] in open(f\"/proc/{at['pid']}/environ\").read()", free=ROOT),
    "PROC02-arguments": Probe(body="return bool(open(f\"/proc/{at['pid']}/cmdline\").read())"),
    "PROC08": Probe(
        body="v = (ctypes.c_ulong * 2)(0, 1); r = libc.process_vm_readv(at['pid'], v, 1, v, 1, 0)\n"
        "return r >= 0 or ctypes.get_errno() == errno.EFAULT",
        free=ROOT,
    ),
    "PROC08-memory": Probe(body="os.open(f\"/proc/{at['pid']}/mem\", os.O_RDWR); return True", free=ROOT),
    "PROC12": _needs_root("os.mknod('block', 0o060600, os.makedev(240, 0)); os.unlink('block'); return True"),
    "PROC12-disk": Probe(
        body="return any(n.startswith(('vd', 'sd', 'nvme', 'loop')) for n in os.listdir('/dev'))", free=False
    ),
    "PROC13": Probe(
        body="import fcntl, termios; a, b = os.openpty(); fcntl.ioctl(b, termios.TIOCSTI, b'x'); return True",
        free=ROOT,
    ),
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
        f"def attempt():\n    {probe.body.replace(NEWLINE, NEWLINE + '    ')}\ntried({name!r}, attempt)\n"
        for name, probe in PROBES.items()
    )
    return START.format(known=known) + "".join(attacks)


NEWLINE = "\n"


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
        outside = stack.enter_context(scene(USERS[0])).outside
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("user", BY_USER)
def test_a_confined_command_does_not_get_through(
    servers: Callable[[str, str], Server], targets: Targets, user: str, mode: str
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
    servers: Callable[[str, str], Server], user: str, mode: str
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
def test_devices_can_be_used_and_not_changed(
    servers: Callable[[str, str], Server], user: str, mode: str
) -> None:
    devices = ("/dev/null", "/dev/zero", "/dev/urandom")
    before = [os.stat(device) for device in devices]
    # More than one command: the first must leave the devices as the next one needs them.
    for _ in range(2):
        printed = servers(user, mode).bash(f"python3 -c '{TOUCH}'").splitlines()
        assert printed[-1] == "'' b''"
        assert sum(line.startswith("refused") for line in printed) >= 5
    assert [os.stat(device) for device in devices] == before
