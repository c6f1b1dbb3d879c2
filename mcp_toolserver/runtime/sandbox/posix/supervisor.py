"""Starts one program, watches it, and ends all that it left before it reports how it ended.

The supervisor leads the session in which the program starts. It ends the program when the server closes or
shuts down its end of the control socket, when the broker is gone, and when time or a limit is over.
"""

import contextlib
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass, field

from mcp_toolserver.runtime.sandbox.broker.fd_passing import (
    NO_SIGNAL,
    Reserve,
    is_out_of_files,
    unstartable,
)
from mcp_toolserver.runtime.sandbox.broker.messages import CHECK, MAX_REQUEST, decode, encode_event
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, SandboxPlan, plan_for
from mcp_toolserver.runtime.sandbox.broker.resource_limits import ended_by
from mcp_toolserver.runtime.sandbox.broker.signals import drain, ignore_polite, wake_on_child_end
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.posix import folders
from mcp_toolserver.runtime.sandbox.posix.family import Family
from mcp_toolserver.runtime.sandbox.posix.killing import end_family
from mcp_toolserver.runtime.sandbox.posix.program import (
    Launch,
    fork_program,
    read_status,
    start_failure,
)
from mcp_toolserver.runtime.sandbox.posix.watch import Watch
from mcp_toolserver.runtime.sandbox.protected.git_dir import git_folders
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable

_RETRY_SECONDS = 1.0
"""Between attempts to end what did not end in time."""

_MOST = 4096


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The values that the broker gives every supervisor."""

    broker_policy: BrokerPolicy
    proof: Proof
    lifeline: int
    """Its end of file is the death of the broker."""
    reserve: Reserve
    folders: folders.Folders | None
    """None where nothing is confined."""
    hidden: HiddenPaths = field(default_factory=HiddenPaths)
    unwatchable: str = ""
    """Why no program can be watched here, and so none is started; empty if one can."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request, as it came with its descriptors."""

    request: int
    control: int
    cwd: int
    stdin: int
    stdout: int
    stderr: int
    marker: str
    """See `Family.marker`."""
    session_folder: str = ""
    """The temporary folder of its session; empty without one."""

    def close_all_but_control(self) -> None:
        """The program alone holds its pipes, so that they end with it."""
        for descriptor in (self.request, self.cwd, self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


def supervise(constants: Constants, job: Job) -> None:
    """Serve one request, in a process of its own, from start to report."""
    os.setsid()
    ignore_polite()
    constants.reserve.release()
    with socket.socket(fileno=job.control) as control, contextlib.ExitStack() as leaving:
        control.setblocking(True)
        try:
            wake = wake_on_child_end()
            launch = _launch(constants, job, leaving)
        except OSError as error:
            if is_out_of_files(error):
                return _send(control, {"failed": unstartable(error)})
            return _send(control, {"sandbox_failed": str(error)})
        if isinstance(launch, dict):
            return _send(control, launch)
        return _run(_Supervision(constants=constants, control=control, wake=wake, launch=launch), job)


def _send(control: socket.socket, event: dict[str, object]) -> None:
    # A server that died does not listen any more.
    with contextlib.suppress(OSError):
        control.sendall(encode_event(event), NO_SIGNAL)


# --- before it runs --------------------------------------------------------------------------------------


def _launch(constants: Constants, job: Job, leaving: contextlib.ExitStack) -> Launch | dict[str, object]:
    """Prepare a request; or return the report on why it is refused.

    Raises:
        OSError: something cannot be opened or created.
    """
    try:
        request = decode(os.pread(job.request, min(os.fstat(job.request).st_size, MAX_REQUEST), 0))
    except ValueError:
        return {"refused": "the request cannot be read"}
    plan = plan_for(constants.broker_policy, constants.proof, request)
    if isinstance(plan, str):
        return {"refused": plan}
    if constants.unwatchable:
        return {"refused": f"no program can be watched here, because {constants.unwatchable}"}
    temporary = ""
    if plan.layer == "seatbelt" and constants.folders is not None:
        # Helpers are ours and share nothing with commands.
        temporary = job.session_folder if plan.helper is None else ""
        if not temporary:
            temporary = constants.folders.of_command()
            leaving.callback(folders.remove, temporary)
    try:
        hidden = _hidden_now(constants, plan)
    except Unprotectable as error:
        return {"sandbox_failed": str(error)}
    return Launch(
        broker_policy=constants.broker_policy,
        request=request,
        plan=plan,
        marker=job.marker,
        temporary=temporary,
        hidden=hidden,
        cwd=job.cwd,
        stdin=job.stdin,
        stdout=job.stdout,
        stderr=job.stderr,
    )


def _hidden_now(constants: Constants, plan: SandboxPlan) -> tuple[str, ...]:
    """The paths that rules hide from a command now. A program of ours leaves them out by itself."""
    if plan.helper is not None or plan.layer == "none":
        return ()
    found = constants.hidden.find(plan.sandbox.roots, plan.shown_roots)
    return (*found, *git_folders(plan.hidden_git))


# --- while it runs, and after ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Main:
    """The program itself."""

    pid: int
    status: int | None = None
    """Once it has ended: 0-255, or 128 + signal."""

    def reap(self) -> int:
        """Wait for it if it has ended; returns its number as long as it has not, else 0."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        return self.pid if self.status is None else 0


@dataclass(kw_only=True)
class _Supervision:
    """What is watched besides the program."""

    constants: Constants
    control: socket.socket
    wake: int
    launch: Launch
    unread: bytes = b""
    """The start of a message of the server."""
    said: bytes = b""
    """What came through the status pipe."""


def _run(supervision: _Supervision, job: Job) -> None:
    try:
        pid, status = fork_program(supervision.launch)
    except OSError as error:
        _send(supervision.control, {"failed": unstartable(error)})
        return
    job.close_all_but_control()
    main = _Main(pid=pid)
    family = Family(supervisor=os.getpid(), marker=job.marker)
    timeout = supervision.launch.request.timeout
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    end = _await_start(supervision, status, deadline)
    os.close(status)
    if end is None:
        if failure := start_failure(supervision.launch, supervision.said):
            _end(main, family)
            _send(supervision.control, failure)
            return
        _send(supervision.control, {"started": True})
        end = _watch(supervision, main, family, deadline)
    gone = _end(main, family)
    reason, detail = end
    report = {"status": main.status, "reason": reason, "detail": detail}
    _send(supervision.control, {name: value for name, value in report.items() if value != ""})
    while not gone:
        time.sleep(_RETRY_SECONDS)
        gone = _end(main, family)


def _end(main: _Main, family: Family) -> bool:
    gone = end_family(family, main.reap)
    main.reap()
    return gone


def _await_start(supervision: _Supervision, status: int, deadline: float) -> tuple[str, str] | None:
    """Wait until the program is started or could not be; or return what ended it before."""
    poller = select.poll()
    for descriptor in (status, supervision.control, supervision.constants.lifeline):
        poller.register(descriptor, select.POLLIN)
    while (now := time.monotonic()) < deadline:
        timeout = None if deadline == math.inf else (deadline - now) * 1000
        ready = {descriptor for descriptor, _ in poller.poll(timeout)}
        if status in ready:
            data = read_status(status)
            if not data:
                return None
            supervision.said += data
        elif end := _ended_from_outside(supervision, ready):
            return end
    return "timed out", ""


def _watch(supervision: _Supervision, main: _Main, family: Family, deadline: float) -> tuple[str, str]:
    """Wait for the first thing that ends a command, and name it; with it, the limit that it was over."""
    bounds = supervision.constants.broker_policy.bounds
    watch = Watch(family, bounds)
    poller = select.poll()
    for descriptor in (supervision.wake, supervision.control, supervision.constants.lifeline):
        poller.register(descriptor, select.POLLIN)
    while True:
        over = watch.look_if_due()
        main.reap()
        if main.status is not None:
            return "exited", ended_by(main.status, bounds)
        if over:
            return "over a limit", over
        now = time.monotonic()
        if now >= deadline:
            return "timed out", ""
        remaining = max(min(watch.due, deadline) - now, 0)
        ready = {descriptor for descriptor, _ in poller.poll(remaining * 1000)}
        if end := _ended_from_outside(supervision, ready):
            return end
        drain(supervision.wake)


def _ended_from_outside(supervision: _Supervision, ready: set[int]) -> tuple[str, str] | None:
    """Why the server or the broker ends a command, if one of them does."""
    if supervision.control.fileno() in ready and not _checked(supervision):
        return "stopped", ""
    if supervision.constants.lifeline in ready:
        return "lost", ""
    return None


def _checked(supervision: _Supervision) -> bool:
    """Whether the server asked for a check, at once or in part; it asks for nothing else but the end.

    There is nothing to do for one: Seatbelt denies protected names by pattern, so none can have been made.
    """
    try:
        data = supervision.control.recv(_MOST)
    except OSError:
        return False
    if not data:
        return False
    supervision.unread += data
    while supervision.unread.startswith(CHECK):
        supervision.unread = supervision.unread[len(CHECK) :]
        _send(supervision.control, {"checked": True})
    return CHECK.startswith(supervision.unread)


# --- for a supervisor that was killed --------------------------------------------------------------------


def end_what_is_left(supervisor: int, marker: str) -> None:
    """End the command of a supervisor that ended before it could, in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    end_family(Family(supervisor=supervisor, marker=marker), lambda: 0)
