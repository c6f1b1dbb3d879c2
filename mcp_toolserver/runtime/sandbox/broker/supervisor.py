"""Starts one command, watches it, and kills every process it left before reporting how it ended.

The supervisor is a subreaper, so whatever a command leaves behind becomes its child. Where the kernel scopes
signals, it then kills with `kill(-1)`, which nothing can outrun; else it sweeps /proc. The command lives in
a narrower scope of its own and cannot signal its supervisor.
"""

import contextlib
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass, replace

from mcp_toolserver.runtime.sandbox.broker import fd_passing, messages, supervision
from mcp_toolserver.runtime.sandbox.broker.child import ChildLauncher, scope_signals
from mcp_toolserver.runtime.sandbox.broker.fork import drain, handle_polite, wake_on_child_end
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.resource_limits import Watch
from mcp_toolserver.runtime.sandbox.broker.resource_usage import descendants, measure, signal_all, sweep
from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.confinement import Confinement, RootHandles
from mcp_toolserver.runtime.sandbox.layers.namespaces import SessionNamespaces
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from mcp_toolserver.runtime.sandbox.mounts.mounts import working_folders
from mcp_toolserver.runtime.sandbox.protected.snapshot import WRITING
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.runtime.sandbox.protected.verifier_process import Unverified, Verification

WATCHING_FILES = 8
"""Descriptors that the supervisor opens in addition to start and watch a program."""

KILL_SECONDS = 5.0
"""How long the report may wait for processes that do not die (blocked in the kernel)."""

_REAPED_AT_ONCE = 1000

_SIGNALLED_AT_MOST = 20
"""Times that all processes of a command are signalled, to stop or continue them."""

_NOT_SET_UP = "the sandbox of the command could not be set up"

NOT_VERIFIED = "protected names cannot be verified: the process that does it has ended. Restart the server"


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The values that the broker gives every supervisor."""

    broker_policy: BrokerPolicy
    proof: Proof
    root_handles: RootHandles
    lifeline: int
    """Its end of file is the death of the broker."""
    verification: socket.socket | None
    """The way to the process that verifies protected names; None where no command can write."""
    reserve: fd_passing.Reserve
    """Of each process its own, by the fork."""


def supervise(constants: Constants, calls: socket.socket) -> None:
    """Wait for the one request that comes on `calls`, and serve it from start to report.

    All that does not depend on the request is done before it comes.
    """
    os.setsid()
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    handle_polite(signal.SIG_IGN)
    try:
        wake = wake_on_child_end()
        scoped = _scope_signals(constants.proof)
        launcher = ChildLauncher.fork(constants.broker_policy, constants.proof)
    except OSError as error:
        # What comes from now on is for another supervisor.
        calls.shutdown(socket.SHUT_RD)
        _received(constants, calls, error)
        return None
    received = _received(constants, calls)
    if len(received) < messages.DESCRIPTORS:
        return launcher.dismiss()
    job = supervision.Descriptors(*received[: messages.DESCRIPTORS])
    # Added by the broker, where the command is one of a session.
    session = SessionNamespaces.received(received[messages.DESCRIPTORS :])
    with socket.socket(fileno=job.control) as control:
        ready = _ready(constants, job, session)
        if not isinstance(ready, _Ready):
            supervision.send_event(control, ready)
            return launcher.dismiss()
        failure = _start(launcher, ready, job)
        if session is not None:
            session.close()
        if failure:
            ready.undo.close()
            return supervision.send_event(control, failure)
        supervision.send_event(control, {"started": True})
        bounds = constants.broker_policy.bounds
        program = _Program(
            control=control,
            lifeline=constants.lifeline,
            wake=wake,
            others=() if ready.verification is None else (ready.verification.fileno(),),
            bounds=bounds,
            deadline=supervision.deadline_after(ready.request.timeout),
            main=launcher.pid,
            verification=ready.verification,
            scoped=scoped,
            suspends=scoped or ready.confinement.plan.layer != "landlock",
        )
        watch = Watch(bounds, lambda: measure(os.getpid(), exact_above=bounds.memory))
        reason, detail = program.first_end(watch)
        gone = program.kill_all()
        end = {"reason": reason, "detail": detail, **ready.tear_down(reason, gone=gone)}
        program.report(end, gone=gone)
    return None


def _received(constants: Constants, calls: socket.socket, failure: OSError | None = None) -> list[int]:
    """The descriptors of the request; none where it is refused, because of `failure` or for lack of room."""
    constants.reserve.release()
    with calls:
        try:
            received = fd_passing.receive(calls)
        except fd_passing.Truncated as error:
            received, failure = error.descriptors, error
    if failure is None:
        return received
    for control in received[:1]:
        fd_passing.refuse(control, fd_passing.unstartable(failure))
    return []


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A request that may be served, and its sandbox."""

    request: messages.Request
    confinement: Confinement
    verification: Verification | None
    """Where the program may write in the roots."""

    undo: contextlib.ExitStack
    """What cleans up where no program is started."""

    def tear_down(self, reason: str, *, gone: bool) -> dict[str, object]:
        """What to report of what the program left. As long as not all of it is `gone`, nothing is verified,
        and the verification goes on."""
        ran, notes = self.confinement.tear_down(reason)
        failure = {} if ran else {"reason": "sandbox_failed", "detail": _NOT_SET_UP}
        if self.verification is None:
            return {**failure, "notes": notes}
        if gone:
            with contextlib.suppress(Unverified, OSError):
                return {**failure, "notes": (*notes, *self.verification.end())}
        return {**failure, "notes": notes, "reason": "unverified"}


def _ready(
    constants: Constants, job: supervision.Descriptors, session: SessionNamespaces | None
) -> _Ready | dict[str, object]:
    """Prepare a request; or return the report on why it is refused."""
    found = supervision.planned(job.request, constants.broker_policy, constants.proof)
    if isinstance(found, dict):
        return found
    request, plan = found
    with contextlib.ExitStack() as undo:
        verification, places = None, ()
        try:
            if constants.verification is not None and plan.sandbox.mode == WRITING:
                verification = Verification(constants.verification)
                places = verification.begin(plan.shown_roots, messages.session_of(request))
                undo.callback(_ended, verification)
            # Only for bubblewrap, behind which this process may know them.
            working = working_folders() if plan.layer == "bubblewrap" else ()
            root_handles = replace(constants.root_handles, working=working)
            confinement = Confinement.ready(plan, root_handles, job.cwd, places, session=session)
            undo.callback(confinement.undo.close)
            _check_room(constants.lifeline)
        except (OSError, Unprotectable) as error:
            return supervision.preparation_failure(error)
        except Unverified:
            return {"sandbox_failed": NOT_VERIFIED}
        # Descriptors that are left open end with this process.
        return _Ready(
            request=request, confinement=confinement, verification=verification, undo=undo.pop_all()
        )


def _check_room(descriptor: int) -> None:
    """Raises: OSError: fewer files can be opened than starting and watching a program takes."""
    with contextlib.ExitStack() as opened:
        for _ in range(WATCHING_FILES):
            opened.callback(os.close, os.dup(descriptor))


def _ended(verification: Verification) -> None:
    """The report of a request that started nothing."""
    with contextlib.suppress(Unverified, OSError):
        verification.end()


def _start(launcher: ChildLauncher, ready: _Ready, job: supervision.Descriptors) -> dict[str, object]:
    """Start the main process: why it could not be started, or nothing."""
    try:
        launcher.start(ready.request, job, ready.confinement.launch_plan)
    except OSError as error:
        why = "what was to become of it was killed"
        if fd_passing.is_out_of_files(error):
            why = fd_passing.unstartable(error)
        failure: dict[str, object] = {"failed": why}
    else:
        ready.confinement.close_descriptors()
        job.close_all_but_control()
        failure = launcher.failure()
    if failure:
        launcher.dismiss()
    return failure


# --- before it runs --------------------------------------------------------------------------------------


def _scope_signals(proof: Proof) -> bool:
    """Narrow whom this process can signal; True when that is proved.

    `kill(-1)` outside of a scope would kill the machine, so the kernel must show both that the broker could
    be signalled before and that it cannot be now.
    """
    outsider = os.getppid()
    before = _may_signal(outsider)
    return scope_signals(proof) and before is True and _may_signal(outsider) is False


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


@dataclass(kw_only=True)
class _Program(supervision.Supervision):
    """The program of the request, and all that it started."""

    main: int
    verification: Verification | None
    scoped: bool
    """See `_scope_signals`."""
    suspends: bool
    """Whether nothing outside of the command can make its stopped processes go on. While they are stopped,
    there is no deadline, ..."""
    remaining: float = 0.0
    """... and this is what was left of it then."""

    def reap(self) -> bool:
        """Whether no child is left. Reaps a bounded number per call, so that a fork storm cannot keep the
        supervisor from its other work."""
        for _ in range(_REAPED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main:
                self.status = supervision.exit_status(status)
        return False

    def end_from_outside(self, ready: set[int]) -> tuple[str, str] | None:
        if end := super().end_from_outside(ready):
            return end
        if self.verification is not None:
            if self.verification.fileno() in ready:
                self.verification.receive_notice()
                supervision.send_event(self.control, {"noticed": self.verification.take_notes()})
            if self.verification.uncovered:
                return "uncovered", self.verification.uncovered
        return None

    def obey(self) -> bool:
        try:
            word = self.control.recv(len(messages.CHECK) + 1)
            if word in (messages.SUSPEND, messages.RESUME):
                return self._set_suspended(word == messages.SUSPEND)
            if word != messages.CHECK:
                return False
            notes = () if self.verification is None else self.verification.check()
        except (OSError, Unverified):
            return False
        supervision.send_event(self.control, {"noticed": notes})
        if self.verification is None or not self.verification.uncovered:
            supervision.send_event(self.control, {"checked": True})
        return True

    def _set_suspended(self, suspends: bool) -> bool:
        """Stop all processes of the command, or let them go on; whether that was done."""
        now, number = time.monotonic(), signal.SIGSTOP if suspends else signal.SIGCONT
        if not self.suspends:
            return False
        if self.scoped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, number)
        # Again, because what was not signalled yet may have started others, or have ended.
        elif not any(
            descendants(os.getpid()) <= signal_all(os.getpid(), number) for _ in range(_SIGNALLED_AT_MOST)
        ):
            return False
        if suspends:
            self.remaining, self.deadline = self.deadline - now, math.inf
            supervision.send_event(self.control, {"suspended": True})
        else:
            self.deadline = now + self.remaining
        return True

    def kill_all(self) -> bool:
        deadline = time.monotonic() + KILL_SECONDS
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        while not self.reap():
            if time.monotonic() > deadline:
                return False
            if self.scoped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                sweep(os.getpid())
            poller.poll(20)
            drain(self.wake)
        return True
