"""What a confined command reaches through pipes, sockets, devices, files of the kernel, and locks.

Message queues, shared memory and abstract sockets are in no folder: `test_escape_ipc.py`.
"""

import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.confinement import WORKSPACE_WRITE, Servers, put
from tests.support.sessions import each_once

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
