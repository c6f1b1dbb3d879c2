"""The kernel holds the server's own process: a tool with a bug, or worse, can do no more than its mode.

A child process puts a dispatcher together with a tool that does as it likes with the operating system, locks
itself as the server does, and calls the tool. The same child without the lock is the control.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests import ROOT
from tests.support.confinement import READ_ONLY, USERS, WORKSPACE_WRITE, Scene, as_user, put, scene
from tests.support.snapshot import differences

CHILD = """
import ctypes, json, os, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
import anyio
from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.settings import Settings
from tests.support.workbench import Args, Output, Person, dispatcher, machine, tool

asked = json.loads(sys.argv[2])
root, outside, home, state, port = (asked[name] for name in ("root", "outside", "home", "state", "port"))
libc = ctypes.CDLL(None, use_errno=True)

def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")

def forked(action):
    child = os.fork()
    if not child:
        try:
            action()
        finally:
            os._exit(77)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77:
        raise PermissionError("the child could not")

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.connect(address)

def fast_open():
    with socket.socket() as s:
        s.sendto(b"x", 0x20000000, ("127.0.0.1", port))

def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("127.0.0.1", port))

def in_memory():
    program = os.memfd_create("program")
    os.write(program, open("/bin/true", "rb").read())
    forked(lambda: os.execv(f"/proc/self/fd/{program}", ["true"]))

def write(path):
    with open(path, "w") as file:
        file.write("x")

def through_descriptor():
    reading = os.open(f"{root}/f", os.O_RDONLY)
    write(f"/proc/self/fd/{reading}")

ATTACKS = {
    "write": lambda: write(f"{root}/f"),
    "create": lambda: write(f"{root}/new-file"),
    "append": lambda: open(f"{root}/f", "a").close(),
    "empty": lambda: os.truncate(f"{root}/f", 0),
    "empty-readable": lambda: os.close(os.open(f"{root}/f", os.O_RDONLY | os.O_TRUNC)),
    "descriptor": through_descriptor,
    "remove": lambda: os.remove(f"{root}/magic"),
    "rename": lambda: os.rename(f"{root}/d", f"{root}/e"),
    "folder": lambda: os.mkdir(f"{root}/new-folder"),
    "link": lambda: os.link(f"{root}/f", f"{root}/new-link"),
    "symlink": lambda: os.symlink("f", f"{root}/new-symlink"),
    "fifo": lambda: os.mkfifo(f"{root}/new-fifo"),
    "chmod": lambda: os.chmod(f"{root}/f", 0o777),
    "chown": lambda: os.chown(f"{root}/f", os.geteuid(), os.getegid()),
    "utime": lambda: os.utime(f"{root}/f", (0, 0)),
    "xattr": lambda: os.setxattr(f"{root}/f", "user.x", b"y"),
    "xattr-gone": lambda: os.removexattr(f"{root}/f", "user.note"),
    "outside": lambda: write(f"{outside}/kept"),
    "outside-new": lambda: write(f"{outside}/new"),
    "outside-moved": lambda: os.rename(f"{root}/g", f"{outside}/g"),
    "outside-link": lambda: write(f"{root}/link_out"),
    "home": lambda: open(f"{home}/.bashrc").close(),
    "home-write": lambda: write(f"{home}/.bashrc"),
    "connect": lambda: connect(socket.AF_INET, ("127.0.0.1", port)),
    "connect-multipath": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262),
    "connect-unix": lambda: connect(socket.AF_UNIX, f"{outside}/socket"),
    "connect-abstract": lambda: connect(socket.AF_UNIX, asked["abstract"]),
    "fast-open": fast_open,
    "datagram": datagram,
    "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "exec": lambda: forked(lambda: os.execv("/bin/true", ["true"])),
    "exec-interpreter": lambda: forked(lambda: os.execv(sys.executable, [sys.executable, "-c", ""])),
    "exec-memory": in_memory,
    "subprocess": lambda: subprocess.run(["/bin/true"], check=True),
    "shell": lambda: subprocess.run("true", shell=True, check=True),
    "spawn": lambda: forked(lambda: os.posix_spawn("/bin/true", ["true"], {}) and os._exit(0)),
    "environment": lambda: open(f"/proc/{asked['bystander']}/environ").read(),
    "memory": lambda: os.close(os.open(f"/proc/{asked['bystander']}/mem", os.O_RDWR)),
    "namespace": lambda: forked(lambda: call(libc.unshare(0x10000000)) or os._exit(0)),
}

async def run(args, rt):
    done = {}
    for name, thread in asked["attacks"]:
        def attempt(attack=ATTACKS[name]):
            try:
                attack()
            except (OSError, subprocess.SubprocessError) as error:
                return str(error)
            return "done"
        done[f"{name} in the {thread}"] = attempt() if thread == "loop" else await rt.compute(attempt)
    return Output(json.dumps(done))

class Nothing(Args):
    pass

def main():
    server = dispatcher(machine(__import__("pathlib").Path(asked["machine"])), tool(run, Nothing))
    mode = next(one for one in Permission if one.flag == asked["mode"])
    settings = Settings(permission_mode=mode, root=(root,), state_dir=state, network="none")
    if asked["lock"]:
        confinement.lock_server(settings)
    write(f"{state}/kept")
    result = anyio.run(server.call, "probe", {}, Person())
    assert result.error is None, result.text
    print(result.text)

main()
"""


INSIDE = (
    *("write", "create", "append", "empty", "empty-readable", "descriptor", "remove", "rename", "folder"),
    *("link", "symlink", "fifo", "chmod", "chown", "utime", "xattr", "xattr-gone"),
)
"""In the root: for read-only to refuse, and for workspace-write to allow."""

BEYOND = (
    *("outside", "outside-new", "outside-moved", "outside-link", "home", "home-write"),
    *("connect", "connect-multipath", "connect-unix", "connect-abstract", "fast-open", "datagram", "listen"),
    *("netlink", "exec", "exec-interpreter", "exec-memory", "subprocess", "shell", "spawn"),
    *("environment", "memory", "namespace"),
)
"""For both to refuse."""


Attack = tuple[str, str]
"""By name, and the thread it comes from: that of the event loop, or a worker that started after the lock."""


def attacks(*names: str, threads: Sequence[str] = ("loop", "worker")) -> list[Attack]:
    return [(name, thread) for name in names for thread in threads]


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A scene with things to attack."""

    at: Scene
    port: int
    abstract: str
    bystander: int

    def attack(self, mode: str, *attacks: Attack, lock: bool = True) -> dict[str, str]:
        """What came of each attack: `done`, or why not."""
        asked = {
            **{name: str(getattr(self.at, name)) for name in ("root", "outside", "home", "state")},
            "machine": str(self.at.base / "run"),
            "port": self.port,
            "abstract": self.abstract,
            "bystander": self.bystander,
            "mode": mode,
            "attacks": attacks,
            "lock": lock,
        }
        ended = subprocess.run(
            [*as_user(self.at), sys.executable, "-c", CHILD, str(ROOT), json.dumps(asked)],
            env=self.at.environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        came: dict[str, str] = json.loads(ended.stdout)
        assert len(came) == len(attacks)
        return came


@contextmanager
def lab(user: str) -> Generator[Lab]:
    with (
        scene(user) as at,
        socket.create_server(("127.0.0.1", 0), backlog=64) as listener,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen([*as_user(at), "sleep", "60"]) as bystander,
    ):
        named.bind(str(at.outside / "socket"))
        abstract.bind(f"\0{at.base.name}")
        named.listen(64)
        abstract.listen(64)
        put(at.base / "run/root/f", "")
        at.own()
        try:
            yield Lab(
                at=at,
                port=listener.getsockname()[1],
                abstract=f"\0{at.base.name}",
                bystander=bystander.pid,
            )
        finally:
            bystander.kill()


@pytest.mark.parametrize("user", USERS)
def test_a_read_only_server_can_do_no_harm_itself(user: str) -> None:
    with lab(user) as made:
        before = made.at.seen()
        came = made.attack(READ_ONLY, *attacks(*INSIDE, *BEYOND))
        assert [name for name, what in came.items() if what == "done"] == []
        assert differences(before, made.at.seen()) == []


@pytest.mark.parametrize("user", USERS)
def test_a_workspace_write_server_writes_in_its_roots_and_does_no_more(user: str) -> None:
    with lab(user) as made:
        before = made.at.around()
        inside = attacks(*INSIDE, threads=("worker",))
        came = made.attack(WORKSPACE_WRITE, *attacks(*BEYOND), *inside)
        done = [name for name, what in came.items() if what == "done"]
        assert done == [f"{name} in the {thread}" for name, thread in inside]
        assert differences(before, made.at.around()) == []


@pytest.mark.parametrize("user", USERS)
def test_the_same_tool_does_all_of_it_without_the_lock(user: str) -> None:
    with lab(user) as made:
        came = made.attack(READ_ONLY, *attacks(*INSIDE, *BEYOND, threads=("loop",)), lock=False)
        assert {name: what for name, what in came.items() if what != "done"} == {}


def test_danger_full_access_is_not_locked() -> None:
    with lab(USERS[0]) as made:
        came = made.attack("danger-full-access", *attacks("write", "connect", "subprocess"))
        assert set(came.values()) == {"done"}
