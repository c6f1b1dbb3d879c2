"""Starts one program, watches it, and ends all that it left before it reports how it ended.

The supervisor leads the session in which the program starts. It ends the program when the server closes or
shuts down its end of the control socket, when the broker is gone, and when time or a limit is over.

The fork that becomes the program holds one end of a pipe. Without a sandbox the exec closes it. Behind
sandbox-exec, which itself may fail after its exec, a shell in the sandbox first writes to the pipe, then
closes it and becomes the program. So nothing is reported as started that was not: a sandbox that could not be
set up never comes to that shell.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.sandbox.broker import resource_limits, supervision, temp_folder
from mcp_toolserver.runtime.sandbox.broker.fd_passing import Reserve, is_out_of_files, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import handle_polite, wake_on_child_end
from mcp_toolserver.runtime.sandbox.broker.messages import CHECK, Request
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, SandboxPlan
from mcp_toolserver.runtime.sandbox.layers import seatbelt
from mcp_toolserver.runtime.sandbox.layers.environment import with_temporary
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.posix.family import MARKER, Family, end_family, watch_family
from mcp_toolserver.runtime.sandbox.protected.git_dir import git_folders
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable

_MOST = 4096

STATUS_DESCRIPTOR = 4
"""What the shell behind sandbox-exec writes to."""

ENTERED = b"."
"""What it writes."""

_ENTER = f'[ -x "$1" ] && printf . >&{STATUS_DESCRIPTOR} && exec {STATUS_DESCRIPTOR}>&- "$@"'
NOT_SET_UP = "sandbox-exec could not set up the sandbox of the command"


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


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """A program that may be started."""

    broker_policy: BrokerPolicy
    job: supervision.Descriptors
    request: Request
    plan: SandboxPlan
    temporary: str
    """Its folder for temporary files; empty where nothing confines the program."""
    hidden: tuple[str, ...]
    """Paths that rules hide from it."""

    @property
    def is_confined(self) -> bool:
        return self.plan.layer == "seatbelt"


def supervise(constants: Constants, job: supervision.Descriptors, marker: str, session_folder: str) -> None:
    """Serve one request, in a process of its own, from start to report: `marker` is that of its family, and
    `session_folder` the temporary folder of its session; empty without one."""
    os.setsid()
    handle_polite(signal.SIG_IGN)
    constants.reserve.release()
    with socket.socket(fileno=job.control) as control, contextlib.ExitStack() as leaving:
        control.setblocking(True)
        try:
            wake = wake_on_child_end()
            launch = _launch(constants, job, session_folder, leaving)
        except (OSError, Unprotectable) as error:
            return supervision.send_event(control, supervision.preparation_failure(error))
        if isinstance(launch, dict):
            return supervision.send_event(control, launch)
        program = _Program(
            control=control,
            lifeline=constants.lifeline,
            wake=wake,
            bounds=constants.broker_policy.bounds,
            deadline=supervision.deadline_after(launch.request.timeout),
            family=Family(supervisor=os.getpid(), marker=marker),
        )
        return _run(launch, program)


# --- before it runs --------------------------------------------------------------------------------------


def _launch(
    constants: Constants, job: supervision.Descriptors, session_folder: str, leaving: contextlib.ExitStack
) -> _Launch | dict[str, object]:
    """Prepare a request; or return the report on why it is refused.

    Raises:
        OSError, Unprotectable: something cannot be opened or made, or what rules hide cannot be
            found.
    """
    found = supervision.planned(job.request, constants.broker_policy, constants.proof)
    if isinstance(found, dict):
        return found
    request, plan = found
    if constants.unwatchable:
        return {"refused": f"no program can be watched here, because {constants.unwatchable}"}
    temporary, hidden = "", ()
    if plan.layer == "seatbelt":
        # Helpers are ours and share nothing with commands.
        temporary = session_folder if plan.helper is None else ""
        if not temporary:
            temporary = temp_folder.of_command(constants.broker_policy.scratch)
            leaving.callback(temp_folder.remove, temporary)
    # A program of ours leaves what rules hide out by itself.
    if plan.layer != "none" and plan.helper is None:
        found = constants.hidden.find(plan.sandbox.roots, plan.shown_roots)
        hidden = (*found, *git_folders(plan.hidden_git))
    return _Launch(
        broker_policy=constants.broker_policy,
        job=job,
        request=request,
        plan=plan,
        temporary=temporary,
        hidden=hidden,
    )


# --- while it runs, and after ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Program(supervision.Supervision):
    """The program of the request, and all that it started."""

    family: Family
    pid: int = 0

    def reap(self) -> int:
        """See `family.Reap`."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = supervision.exit_status(status)
        return self.pid if self.status is None else 0

    def kill_all(self) -> bool:
        gone = end_family(self.family, self.reap)
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
        """Answer checks; the server asks for nothing else but the end.

        There is nothing to do for one: Seatbelt denies protected names by pattern, so none can have been
        made.
        """
        try:
            data = self.control.recv(_MOST)
        except OSError:
            return False
        for _ in range(data.count(CHECK)):
            supervision.send_event(self.control, {"checked": True})
        return bool(data) and not data.replace(CHECK, b"")


def _run(launch: _Launch, program: _Program) -> None:
    try:
        pipe, writing = os.pipe()
        program.pid = os.fork()
    except OSError as error:
        return supervision.send_event(program.control, {"failed": unstartable(error)})
    if program.pid == 0:
        os.close(pipe)
        supervision.become(writing, lambda status: _exec(launch, program.family, status))
    os.close(writing)
    launch.job.close_all_but_control()
    end, said = program.await_start(pipe)
    os.close(pipe)
    if end is None:
        failure: Mapping[str, object] = json.loads(said) if said.startswith(b"{") else {}
        if launch.is_confined and not failure and said != ENTERED:
            failure = {"sandbox_failed": NOT_SET_UP}
        if failure:
            program.kill_all()
            return supervision.send_event(program.control, failure)
        supervision.send_event(program.control, {"started": True})
        end = program.first_end(watch_family(program.family, program.bounds))
    gone = program.kill_all()
    reason, detail = end
    program.report({"reason": reason, "detail": detail}, gone=gone)
    return None


# --- in the fork -----------------------------------------------------------------------------------------


def _exec(launch: _Launch, family: Family, status: int) -> Mapping[str, str]:
    """Replace this fork by the program; returns only on failure, with the reason."""
    # In the session of its supervisor, where a look finds what it leaves, but no signal meant for it.
    os.setpgid(0, 0)
    resource_limits.apply(launch.broker_policy.bounds)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    handle_polite(signal.SIG_DFL)
    job, blamed = launch.job, "sandbox_failed" if launch.is_confined else "failed"
    try:
        os.fchdir(job.cwd)
        cwd = descriptor_path(job.cwd) if launch.is_confined else ""
        for number, descriptor in enumerate((job.stdin, job.stdout, job.stderr)):
            os.dup2(descriptor, number)
        argv = supervision.argv_of(launch.broker_policy, launch.request)
        if launch.is_confined:
            os.dup2(status, STATUS_DESCRIPTOR)
            argv = seatbelt.arguments(
                launch.plan,
                ("/bin/sh", "-c", _ENTER, "sh", *argv),
                temporary=launch.temporary,
                cwd=cwd,
                hidden=launch.hidden,
            )
        environment = with_temporary(
            supervision.environment_of(launch.broker_policy, launch.request), launch.temporary
        )
        os.execve(argv[0], argv, environment | {MARKER: family.marker})  # noqa: S606  # this fork exists to do this
    except OSError as error:
        if is_out_of_files(error):
            raise
        return {blamed: os.strerror(error.errno or 0)}
    except ValueError as error:
        return {blamed: str(error) if launch.is_confined else "an argument cannot be passed to a program"}
