"""One nanny a command: it starts it, watches it, and kills all that came of it before it says how it ended.

The nanny is a subreaper, so whatever a command leaves behind becomes its child. Where the kernel scopes
signals, it then kills with `kill(-1)`, which nothing can outrun; else it sweeps /proc. The command lives in
a narrower scope of its own and cannot signal its nanny.
"""

import contextlib
import fcntl
import json
import math
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from mcp_toolserver.runtime.sandbox import kernel, limits
from mcp_toolserver.runtime.sandbox.bounds import CommandBounds
from mcp_toolserver.runtime.sandbox.charter import Charter, decide
from mcp_toolserver.runtime.sandbox.confined import Confinement, Ground
from mcp_toolserver.runtime.sandbox.enclosure import LockError
from mcp_toolserver.runtime.sandbox.environment import helper_environment
from mcp_toolserver.runtime.sandbox.guard import Unprotectable
from mcp_toolserver.runtime.sandbox.signals import drain, heed_polite, ignore_polite, wake_on_child_end
from mcp_toolserver.runtime.sandbox.sweep import sweep
from mcp_toolserver.runtime.sandbox.walls import Proof
from mcp_toolserver.runtime.sandbox.wire import MAX_REQUEST, Request, Script, decode

LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""

SCRIPT_DESCRIPTOR = 3
KILL_SECONDS = 5.0
"""How long the report may wait for processes that do not die (blocked in the kernel)."""

_OOM_FIRST = b"1000"
_HIGH_DESCRIPTOR = 10
_BURIED_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """What came with a request, in the order of the packet."""

    request: int
    control: int
    cwd: int
    stdin: int
    stdout: int
    stderr: int

    @classmethod
    def received(cls, descriptors: list[int]) -> "Descriptors":
        """Those of a packet."""
        request, control, cwd, stdin, stdout, stderr = descriptors
        return cls(request=request, control=control, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)

    def close_all_but_control(self) -> None:
        """Leave the command alone with its pipes, so that they end with it."""
        for descriptor in (self.request, self.cwd, self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


@dataclass
class Family:
    """A main process and all that came of it."""

    main: int
    status: int | None = None
    """Of the main process once it has ended: 0-255, or 128 + signal."""

    def reap(self) -> bool:
        """Bury the dead. True when none of the family is left.

        No more than so many at once: many that die fast must not keep the nanny from all else.
        """
        for _ in range(_BURIED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        return False


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the broker gives every nanny."""

    charter: Charter
    proof: Proof
    ground: Ground
    lifeline: int
    """Its end of file is the death of the broker."""
    broker: int


def attend(constants: Constants, descriptors: Descriptors) -> None:
    """Serve one request from start to report."""
    with socket.socket(fileno=descriptors.control) as control:
        try:
            request = decode(_read(descriptors.request))
        except ValueError:
            return _tell(control, {"refused": "the request cannot be read"})
        behind = decide(constants.charter, constants.proof, request)
        if isinstance(behind, str):
            return _tell(control, {"refused": behind})
        try:
            confinement = Confinement.ready(behind, constants.ground, descriptors.cwd)
        except (OSError, Unprotectable) as error:
            return _tell(control, {"unwalled": str(error)})
        os.setsid()
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        ignore_polite()
        watched = Watched(
            control=control.fileno(),
            lifeline=constants.lifeline,
            wake=wake_on_child_end(),
            bounds=constants.charter.bounds,
        )
        enclosed = _enclose(constants.broker)
        family, failure = _start(constants.charter, request, descriptors, confinement)
        if failure:
            confinement.taken_down("failed")
            return _tell(control, failure)
        _tell(control, {"started": True})
        reason, limit = _watch(family, watched, request.timeout)
        gone = _kill_all(family, enclosed, watched.wake)
        end = {"status": family.status, "reason": reason, "detail": limit, **confinement.taken_down(reason)}
        _tell(control, {name: value for name, value in end.items() if value not in ("", ())})
        while not gone:
            gone = _kill_all(family, enclosed, watched.wake)
    return None


def _read(file: int) -> bytes:
    return os.pread(file, min(os.fstat(file).st_size, MAX_REQUEST), 0)


def _tell(control: socket.socket, message: dict[str, object]) -> None:
    # A server that died does not listen any more.
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode(), socket.MSG_NOSIGNAL)


# --- before it runs --------------------------------------------------------------------------------------


def _enclose(outsider: int) -> bool:
    """Narrow whom this process can signal; True when that is proved.

    `kill(-1)` outside of a scope would kill the machine, so the kernel must show both that `outsider` could
    be signalled before and that it cannot be now.
    """
    before = _may_signal(outsider)
    try:
        kernel.scope_signals()
    except OSError:
        return False
    return before is True and _may_signal(outsider) is False


def _may_signal(pid: int) -> bool | None:
    """Whether the kernel lets us signal `pid`; None when it is gone."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        return None
    return True


def _start(
    charter: Charter, request: Request, descriptors: Descriptors, confinement: Confinement
) -> tuple[Family, dict[str, object]]:
    """Start the main process; with it, why it could not be started, or nothing."""
    failed, telling = os.pipe()
    nanny = os.getpid()
    main = os.fork()
    if main == 0:
        _become(charter, request, descriptors, confinement, _Parent(telling=telling, nanny=nanny))
    os.close(telling)
    confinement.entered()
    descriptors.close_all_but_control()
    # The end of file is the exec: it closes the other end.
    failure = os.read(failed, 4096)
    os.close(failed)
    if failure:
        os.waitpid(main, 0)
    return Family(main), json.loads(failure or b"{}")


@dataclass(frozen=True, kw_only=True)
class _Parent:
    """What the fork knows of its nanny."""

    telling: int
    nanny: int


def _become(
    charter: Charter, request: Request, descriptors: Descriptors, confinement: Confinement, parent: _Parent
) -> NoReturn:
    """Turn this fork into the main process; never returns."""
    failure = {"failed": "it could not be prepared"}
    telling = parent.telling
    try:
        telling = _move_up(telling)
        _leave_nothing_of_the_nanny(parent.nanny)
        os.fchdir(descriptors.cwd)
        for number, descriptor in enumerate((descriptors.stdin, descriptors.stdout, descriptors.stderr)):
            os.dup2(descriptor, number)
        argv = confinement.enter(_argv(charter, request))
        environment = {**_environment(charter, request), **confinement.environment}
        limits.apply(charter.bounds)
        os.execve(argv[0], argv, environment)  # noqa: S606  # a nanny exists to do this
    except (LockError, Unprotectable) as error:
        failure = {"unwalled": str(error)}
    except OSError as error:
        failure = {confinement.blame: os.strerror(error.errno or 0)}
    except ValueError:
        failure = {"failed": "an argument cannot be passed to a program"}
    finally:
        os.write(telling, json.dumps(failure).encode())
        os._exit(127)


def _leave_nothing_of_the_nanny(nanny: int) -> None:
    # Dumpable again, or an unprivileged process does not own its /proc files.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nanny:
        os._exit(127)
    os.setsid()
    with contextlib.suppress(OSError):
        kernel.scope_signals()
    heed_polite()
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


def _move_up(descriptor: int) -> int:
    """A copy of `descriptor` out of the way of those that the program gets."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)


# --- while it runs, and after ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The descriptors whose readiness ends a command, the one that tells of ended children, and what the
    command may use."""

    control: int
    lifeline: int
    wake: int
    bounds: CommandBounds


def _watch(family: Family, watched: Watched, timeout: float | None) -> tuple[str, str]:
    """Wait for the first thing that ends a command, and name it; with it, the bound that it was over."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    watch = limits.Watch(os.getpid(), watched.bounds)
    poller = select.poll()
    for descriptor in (watched.control, watched.lifeline, watched.wake):
        poller.register(descriptor, select.POLLIN)
    while True:
        over = watch.look_if_due()
        family.reap()
        if family.status is not None:
            return "exited", limits.ended_by(family.status, watched.bounds)
        if over:
            return "over a limit", over
        now = time.monotonic()
        if now >= deadline:
            return "timed out", ""
        left = max(min(watch.due, deadline) - now, 0)
        ready = {descriptor for descriptor, _ in poller.poll(left * 1000)}
        if watched.control in ready:
            return "stopped", ""
        if watched.lifeline in ready:
            return "lost", ""
        drain(watched.wake)


def _kill_all(family: Family, enclosed: bool, wake: int) -> bool:
    """Kill until none is left, or `KILL_SECONDS` are over. True when none is left."""
    deadline = time.monotonic() + KILL_SECONDS
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    while not family.reap():
        if time.monotonic() > deadline:
            return False
        if enclosed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            sweep(os.getpid())
        poller.poll(20)
        drain(wake)
    return True
