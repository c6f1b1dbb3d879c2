"""The fork that becomes a program. It is made before there is a request, so that no request waits for it."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Self

from mcp_toolserver.runtime.sandbox import kernel, limits
from mcp_toolserver.runtime.sandbox.ahead import SECONDS, Ahead
from mcp_toolserver.runtime.sandbox.bubblewrap import Enclosure
from mcp_toolserver.runtime.sandbox.charter import Charter, decide
from mcp_toolserver.runtime.sandbox.confined import Entrance, go_behind
from mcp_toolserver.runtime.sandbox.enclosure import LockError
from mcp_toolserver.runtime.sandbox.environment import helper_environment
from mcp_toolserver.runtime.sandbox.passing import receive, send
from mcp_toolserver.runtime.sandbox.signals import heed_polite
from mcp_toolserver.runtime.sandbox.walls import Proof
from mcp_toolserver.runtime.sandbox.wire import Request, Script, decode, encode

LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""

SCRIPT_DESCRIPTOR = 3

_BEHIND = b"behind"
_HIGH_DESCRIPTOR = 10
_OOM_FIRST = b"1000"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a program starts with. All are open descriptors."""

    cwd: int
    stdin: int
    stdout: int
    stderr: int


class Starter:
    """A fork that waits to be told what to become."""

    def __init__(self, pid: int, orders: socket.socket) -> None:
        self.pid = pid
        self._orders = orders

    @classmethod
    def forked(cls, charter: Charter, proof: Proof) -> Self:
        """Fork it from this process, with which it dies.

        Raises:
            OSError: no process can be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nanny = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _wait(_Recruit(charter=charter, proof=proof, orders=theirs), nanny)
        theirs.close()
        return cls(pid, ours)

    def goes_behind(self, standing: Ahead) -> bool:
        """Have it go behind walls that stand, and tell whether it did. If not, it is of no more use."""
        order = os.memfd_create("order")
        try:
            send(self._orders, (order, *standing.namespaces))
            fork = int(self._answer())
            # It ends, and leaves us the fork that goes on.
            os.waitpid(self.pid, 0)
            self.pid = fork
            return self._answer() == _BEHIND
        except (OSError, ValueError):
            return False
        finally:
            os.close(order)

    def _answer(self) -> bytes:
        answered, _, _ = select.select((self._orders,), (), (), SECONDS)
        return self._orders.recv(64) if answered else b""

    def start(self, request: Request, around: Surroundings, entrance: Entrance) -> None:
        """Have it become the program of `request`.

        Raises:
            OSError: it is gone.
        """
        order = os.memfd_create("order")
        try:
            os.write(order, _order(request, entrance))
            standard = (around.cwd, around.stdin, around.stdout, around.stderr)
            send(self._orders, (order, *standard, *entrance.enclosure.descriptors))
        finally:
            os.close(order)

    def failure(self) -> dict[str, object]:
        """Why it could not become that, or nothing. Waits until it has or could not."""
        # The end of file is the exec: it closes the other end.
        with self._orders:
            return json.loads(self._orders.recv(4096) or b"{}")

    def dismiss(self) -> None:
        """Have it end, if it has not, and wait for that."""
        self._orders.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _order(request: Request, entrance: Entrance) -> bytes:
    told = {
        "request": encode(request).decode(),
        "words": entrance.enclosure.words,
        "scratch": entrance.scratch,
        "devices": entrance.devices,
        "is_behind": entrance.is_behind,
        "folder": entrance.folder,
        "temporary": entrance.temporary,
    }
    return json.dumps(told).encode()


def _understood(order: bytes, given: list[int]) -> tuple[Request, Entrance]:
    """The request and the way in of `order`, with whose descriptors came those in `given`."""
    told = json.loads(order)
    entrance = Entrance(
        enclosure=Enclosure(words=tuple(told["words"]), descriptors=tuple(given)),
        scratch=told["scratch"],
        devices=told["devices"],
        is_behind=told["is_behind"],
        folder=told["folder"],
        temporary=told["temporary"],
    )
    return decode(told["request"].encode()), entrance


# --- in the fork -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Recruit:
    charter: Charter
    proof: Proof
    orders: socket.socket


def _wait(recruit: _Recruit, nanny: int) -> NoReturn:
    failure = {"failed": "it could not be prepared"}
    orders = _moved_up(recruit.orders.detach())
    try:
        _leave_nothing_of_the_nanny(nanny)
        limits.apply(recruit.charter.bounds)
        _rehearse(recruit)
        given = _given(orders)
        if given and os.fstat(given[0]).st_size == 0:
            _go_behind(recruit, given[1:], orders)
            _rehearse(recruit)
            given = _given(orders)
        if not given:
            os._exit(0)
        failure = _become(recruit, [_moved_up(descriptor) for descriptor in given])
    finally:
        os.write(orders, json.dumps(failure).encode())
        os._exit(127)


def _given(orders: int) -> list[int]:
    """The descriptors of the next order; none when nobody gives orders any more.

    An empty order is to go behind walls whose namespaces come with it.
    """
    with socket.socket(fileno=os.dup(orders)) as incoming:
        return receive(incoming)


def _go_behind(recruit: _Recruit, namespaces: list[int], orders: int) -> None:
    """Raises: OSError: the kernel refused."""
    behind = decide(recruit.charter, recruit.proof, Script(script="", timeout=None))
    if isinstance(behind, str):
        raise PermissionError(behind)
    _show_in_proc()
    go_behind(behind, namespaces, lambda fork: os.write(orders, b"%d" % fork))
    for namespace in namespaces:
        os.close(namespace)
    os.write(orders, _BEHIND)


def _leave_nothing_of_the_nanny(nanny: int) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nanny:
        os._exit(127)
    os.setsid()
    with contextlib.suppress(OSError):
        kernel.scope_signals()
    heed_polite()


def _rehearse(recruit: _Recruit) -> None:
    """Do once, without effect, what a request will take.

    This process shares its memory with its nanny, and each page of it is copied when it is first used.
    """
    request, entrance = _understood(_order(Script(script="", timeout=None), Entrance()), [])
    decide(recruit.charter, recruit.proof, request)
    _argv(recruit.charter, request)
    entrance.enclosure.arguments()


def _become(recruit: _Recruit, given: list[int]) -> dict[str, str]:
    """Turn this fork into the program; returns only why it could not."""
    order, cwd, stdin, stdout, stderr, *entering = given
    request, entrance = _understood(os.pread(order, os.fstat(order).st_size, 0), entering)
    behind = decide(recruit.charter, recruit.proof, request)
    if isinstance(behind, str):
        return {"refused": behind}
    try:
        if not entrance.is_behind:
            _show_in_proc()
            os.fchdir(cwd)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
        argv = entrance.enter(behind, cwd, _argv(recruit.charter, request))
        environment = {**_environment(recruit.charter, request), **entrance.environment}
        os.execve(argv[0], argv, environment)  # noqa: S606  # a starter exists to do this
    except LockError as error:
        return {"unwalled": str(error)}
    except OSError as error:
        # What is started behind bubblewrap is bubblewrap.
        blamed = "unwalled" if behind.layer == "bubblewrap" else "failed"
        return {blamed: os.strerror(error.errno or 0)}
    except ValueError:
        return {"failed": "an argument cannot be passed to a program"}


def _show_in_proc() -> None:
    # Dumpable again, or an unprivileged process does not own its /proc files.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    with contextlib.suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(score, _OOM_FIRST)


def _environment(charter: Charter, request: Request) -> Mapping[str, str]:
    if isinstance(request, Script):
        return charter.environment
    return helper_environment(charter.environment, request.environment)


def _argv(charter: Charter, request: Request) -> tuple[str, ...]:
    if not isinstance(request, Script):
        return request.argv
    script = request.script.encode()
    if len(script) <= LONGEST_ARGUMENT:
        return (*charter.shell, request.script)
    return (*charter.shell, _read_script(script, charter.shell))


def _read_script(script: bytes, shell: tuple[str, ...]) -> str:
    """A script that runs the one too long for an argument, out of a descriptor that it closes first."""
    file = os.memfd_create("script")
    with open(file, "wb", closefd=False) as stream:
        stream.write(script)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, SCRIPT_DESCRIPTOR)
    os.set_inheritable(SCRIPT_DESCRIPTOR, True)
    # Bash reads a file without help; another shell needs cat.
    read = f"</dev/fd/{SCRIPT_DESCRIPTOR}" if "--norc" in shell else f"cat <&{SCRIPT_DESCRIPTOR}"
    return f'eval "exec {SCRIPT_DESCRIPTOR}<&-\n$({read})"'


def _moved_up(descriptor: int) -> int:
    """`descriptor` under a number out of the way of those that the program gets."""
    if descriptor >= _HIGH_DESCRIPTOR:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    os.close(descriptor)
    return moved
