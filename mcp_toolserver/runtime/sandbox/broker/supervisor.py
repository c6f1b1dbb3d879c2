"""One nanny a command: it starts it, watches it, and kills all that came of it before it says how it ended.

The nanny is a subreaper, so whatever a command leaves behind becomes its child. Where the kernel scopes
signals, it then kills with `kill(-1)`, which nothing can outrun; else it sweeps /proc. The command lives in
a narrower scope of its own and cannot signal its nanny.
"""

import contextlib
import json
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass, replace

from mcp_toolserver.runtime.sandbox import kernel, limits
from mcp_toolserver.runtime.sandbox.ahead import Ahead
from mcp_toolserver.runtime.sandbox.bounds import CommandBounds
from mcp_toolserver.runtime.sandbox.charter import Behind, Charter, decide
from mcp_toolserver.runtime.sandbox.confined import Confinement, Ground, built_ahead
from mcp_toolserver.runtime.sandbox.guard import Unprotectable
from mcp_toolserver.runtime.sandbox.passing import receive
from mcp_toolserver.runtime.sandbox.signals import drain, ignore_polite, wake_on_child_end
from mcp_toolserver.runtime.sandbox.starter import Starter, Surroundings
from mcp_toolserver.runtime.sandbox.sweep import sweep
from mcp_toolserver.runtime.sandbox.walls import Proof
from mcp_toolserver.runtime.sandbox.wire import DESCRIPTORS, MAX_REQUEST, Request, Script, decode, encode

KILL_SECONDS = 5.0
"""How long the report may wait for processes that do not die (blocked in the kernel)."""

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
        """Close all but the control socket."""
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


def attend(constants: Constants, calls: socket.socket, *, ahead: bool) -> None:
    """Wait for the one request that comes on `calls`, and serve it from start to report.

    All that does not depend on the request is done before it comes; with `ahead`, the walls of a command too.
    """
    os.setsid()
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    ignore_polite()
    wake = wake_on_child_end()
    enclosed = _enclose(constants.broker)
    starter = Starter.forked(constants.charter, constants.proof)
    standing = _rehearse(constants, ahead=ahead and enclosed)
    if standing is not None and not starter.goes_behind(standing):
        starter, standing = _anew(constants, starter, standing), None
    with calls:
        received = receive(calls)
    if len(received) != DESCRIPTORS:
        return _dismiss(starter, standing)
    descriptors = Descriptors.received(received)
    with socket.socket(fileno=descriptors.control) as control:
        ready = _ready(constants, descriptors, standing)
        if not isinstance(ready, _Ready):
            _tell(control, ready)
            return _dismiss(starter, standing)
        if standing is not None and not ready.confinement.entrance.is_behind:
            starter = _anew(constants, starter, standing)
        failure = _start(starter, ready, descriptors)
        if failure:
            ready.confinement.given_up()
            return _tell(control, failure)
        _tell(control, {"started": True})
        family = Family(starter.pid)
        watched = Watched(
            control=control.fileno(),
            lifeline=constants.lifeline,
            wake=wake,
            bounds=constants.charter.bounds,
        )
        reason, limit = _watch(family, watched, ready.request.timeout)
        gone = _kill_all(family, enclosed, wake)
        left = ready.confinement.taken_down(reason)
        end = {"status": family.status, "reason": reason, "detail": limit, **left}
        _tell(control, {name: value for name, value in end.items() if value not in ("", ())})
        while not gone:
            gone = _kill_all(family, enclosed, wake)
    return None


def _anew(constants: Constants, starter: Starter, standing: Ahead) -> Starter:
    """Another starter, in the place of one behind walls that are not the right ones."""
    _dismiss(starter, standing)
    return Starter.forked(constants.charter, constants.proof)


def _dismiss(starter: Starter, standing: Ahead | None) -> None:
    """End what waits for a command; none comes."""
    if standing is not None:
        standing.dismiss()
    starter.dismiss()


def _rehearse(constants: Constants, *, ahead: bool) -> Ahead | None:
    """Do once what a request will take, and with `ahead` keep the walls if they can be.

    This process shares its memory with the broker, and each page of it is copied when it is first used.
    """
    request = decode(encode(Script(script="", timeout=None)))
    behind = decide(constants.charter, constants.proof, request)
    if isinstance(behind, Behind) and behind.layer == "bubblewrap" and constants.ground.roots:
        with contextlib.suppress(OSError, Unprotectable):
            behind = replace(behind, ahead=behind.ahead and ahead)
            return built_ahead(behind, constants.ground, constants.charter)
    return None


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A request that may be served, and its walls."""

    request: Request
    confinement: Confinement


def _ready(
    constants: Constants, descriptors: Descriptors, standing: Ahead | None
) -> _Ready | dict[str, object]:
    """What is to be done; or the word on why not."""
    try:
        request = decode(_read(descriptors.request))
    except ValueError:
        return {"refused": "the request cannot be read"}
    behind = decide(constants.charter, constants.proof, request)
    if isinstance(behind, str):
        return {"refused": behind}
    try:
        confinement = Confinement.ready(behind, constants.ground, descriptors.cwd, standing)
    except (OSError, Unprotectable) as error:
        return {"unwalled": str(error)}
    return _Ready(request=request, confinement=confinement)


def _start(starter: Starter, ready: _Ready, descriptors: Descriptors) -> dict[str, object]:
    """Start the main process: why it could not be started, or nothing."""
    around = Surroundings(
        cwd=descriptors.cwd, stdin=descriptors.stdin, stdout=descriptors.stdout, stderr=descriptors.stderr
    )
    try:
        starter.start(ready.request, around, ready.confinement.entrance)
    except OSError:
        failure: dict[str, object] = {"failed": "what was to become of it was killed"}
    else:
        # The command is left alone with its pipes, so that they end with it.
        ready.confinement.entered()
        descriptors.close_all_but_control()
        failure = starter.failure()
    if failure:
        starter.dismiss()
    return failure


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
