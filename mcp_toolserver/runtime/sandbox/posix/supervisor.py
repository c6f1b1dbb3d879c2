"""Starts one program, watches it, and ends all that it left before it reports how it ended.

The supervisor leads the session in which the program starts. It ends the program when the server closes or
shuts down its end of the control socket, when the broker is gone, and when time or a limit is over.
"""

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field

from mcp_toolserver.runtime.sandbox.broker.fd_passing import Reserve, is_out_of_files, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import ignore_polite, wake_on_child_end
from mcp_toolserver.runtime.sandbox.broker.messages import CHECK
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, SandboxPlan, plan_for
from mcp_toolserver.runtime.sandbox.broker.supervision import (
    Supervision,
    deadline_after,
    exit_status,
    read_request,
    send_event,
)
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.posix import folders
from mcp_toolserver.runtime.sandbox.posix.family import Family, end_family, watch_family
from mcp_toolserver.runtime.sandbox.posix.program import Job, Launch, fork_program, start_failure
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
    hidden: HiddenPaths = field(default_factory=HiddenPaths)
    unwatchable: str = ""
    """Why no program can be watched here, and so none is started; empty if one can."""


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
                return send_event(control, {"failed": unstartable(error)})
            return send_event(control, {"sandbox_failed": str(error)})
        if isinstance(launch, dict):
            return send_event(control, launch)
        program = _Program(
            control=control,
            lifeline=constants.lifeline,
            wake=wake,
            bounds=constants.broker_policy.bounds,
            deadline=deadline_after(launch.request.timeout),
            family=Family(supervisor=os.getpid(), marker=job.marker),
        )
        return _run(launch, program)


# --- before it runs --------------------------------------------------------------------------------------


def _launch(constants: Constants, job: Job, leaving: contextlib.ExitStack) -> Launch | dict[str, object]:
    """Prepare a request; or return the report on why it is refused.

    Raises:
        OSError: something cannot be opened or created.
    """
    request = read_request(job.request)
    if request is None:
        return {"refused": "the request cannot be read"}
    plan = plan_for(constants.broker_policy, constants.proof, request)
    if isinstance(plan, str):
        return {"refused": plan}
    if constants.unwatchable:
        return {"refused": f"no program can be watched here, because {constants.unwatchable}"}
    temporary = ""
    if plan.layer == "seatbelt":
        # Helpers are ours and share nothing with commands.
        temporary = job.session_folder if plan.helper is None else ""
        if not temporary:
            temporary = folders.of_command(constants.broker_policy.scratch)
            leaving.callback(folders.remove, temporary)
    try:
        hidden = _hidden_now(constants, plan)
    except Unprotectable as error:
        return {"sandbox_failed": str(error)}
    return Launch(
        broker_policy=constants.broker_policy,
        job=job,
        request=request,
        plan=plan,
        temporary=temporary,
        hidden=hidden,
    )


def _hidden_now(constants: Constants, plan: SandboxPlan) -> tuple[str, ...]:
    """The paths that rules hide from a command now. A program of ours leaves them out by itself."""
    if plan.helper is not None or plan.layer == "none":
        return ()
    found = constants.hidden.find(plan.sandbox.roots, plan.shown_roots)
    return (*found, *git_folders(plan.hidden_git))


# --- while it runs, and after ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Program(Supervision):
    """The program of the request, and all that it started."""

    family: Family
    pid: int = 0
    status: int | None = None
    unread: bytes = b""
    """The start of a message of the server."""

    def reap(self) -> int | None:
        self.reap_main()
        return self.status

    def reap_main(self) -> int:
        """See `family.Reap`."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = exit_status(status)
        return self.pid if self.status is None else 0

    def end_all(self) -> bool:
        """End what is left; returns whether nothing is."""
        gone = end_family(self.family, self.reap_main)
        self.reap()
        return gone

    def await_start(self, pipe: int) -> tuple[tuple[str, str] | None, bytes]:
        """Wait until the program is started or could not be; returns what ended it before, if something did,
        and what came through the pipe."""
        said = b""
        while time.monotonic() < self.deadline:
            ready = self.wait(pipe, self.deadline)
            if pipe in ready:
                data = os.read(pipe, _MOST)
                if not data:
                    return None, said
                said += data
            elif end := self.end_from_outside(ready):
                return end, said
        return ("timed out", ""), said

    def obey(self) -> bool:
        """Answer a check, whether it comes at once or in part; the server asks for nothing else but the end.

        There is nothing to do for one: Seatbelt denies protected names by pattern, so none can have been
        made.
        """
        try:
            data = self.control.recv(_MOST)
        except OSError:
            return False
        if not data:
            return False
        self.unread += data
        while self.unread.startswith(CHECK):
            self.unread = self.unread[len(CHECK) :]
            send_event(self.control, {"checked": True})
        return CHECK.startswith(self.unread)


def _run(launch: Launch, program: _Program) -> None:
    try:
        program.pid, pipe = fork_program(launch)
    except OSError as error:
        return send_event(program.control, {"failed": unstartable(error)})
    launch.job.close_all_but_control()
    end, said = program.await_start(pipe)
    os.close(pipe)
    if end is None:
        if failure := start_failure(launch, said):
            program.end_all()
            return send_event(program.control, failure)
        send_event(program.control, {"started": True})
        end = program.first_end(watch_family(program.family, program.bounds))
    gone = program.end_all()
    reason, detail = end
    report = {"status": program.status, "reason": reason, "detail": detail}
    send_event(program.control, {name: value for name, value in report.items() if value != ""})
    while not gone:
        time.sleep(_RETRY_SECONDS)
        gone = program.end_all()
    return None
