"""Starts the program of a request: the fork that becomes it, and what tells whether it did.

The fork holds one end of a pipe. Without a sandbox the exec closes it. Behind sandbox-exec, which itself may
fail after its exec, a shell in the sandbox first writes to the pipe, then closes it and becomes the program.
So nothing is reported as started that was not: a sandbox that could not be set up never comes to that shell.
"""

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.sandbox.broker import resource_limits
from mcp_toolserver.runtime.sandbox.broker.exec_arguments import argv_of, environment_of, moved_up
from mcp_toolserver.runtime.sandbox.broker.fd_passing import is_out_of_files, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import heed_polite
from mcp_toolserver.runtime.sandbox.broker.messages import Request
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, SandboxPlan
from mcp_toolserver.runtime.sandbox.broker.supervision import Descriptors
from mcp_toolserver.runtime.sandbox.layers import seatbelt
from mcp_toolserver.runtime.sandbox.layers.environment import CACHES
from mcp_toolserver.runtime.sandbox.posix.family import MARKER

STATUS_DESCRIPTOR = 4
"""What the shell behind sandbox-exec writes to."""

ENTERED = b"."
"""What it writes."""

_ENTER = f'[ -x "$1" ] && printf . >&{STATUS_DESCRIPTOR} && exec {STATUS_DESCRIPTOR}>&- "$@"'
NOT_SET_UP = "sandbox-exec could not set up the sandbox of the command"


@dataclass(frozen=True, kw_only=True)
class Job(Descriptors):
    """A request, as it came with its descriptors."""

    marker: str
    """See `Family.marker`."""
    session_folder: str = ""
    """The temporary folder of its session; empty without one."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A program that may be started."""

    broker_policy: BrokerPolicy
    job: Job
    request: Request
    plan: SandboxPlan
    temporary: str
    """Its folder for temporary files; empty where nothing confines the program."""
    hidden: tuple[str, ...]
    """Paths that rules hide from it."""

    @property
    def is_confined(self) -> bool:
        """Whether it runs behind sandbox-exec."""
        return self.plan.layer == "seatbelt"


def fork_program(launch: Launch) -> tuple[int, int]:
    """Fork the process that becomes the program; returns its number and a pipe for `start_failure`.

    Raises:
        OSError: no process can be started.
    """
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        os.close(reading)
        _become(launch, writing)
    os.close(writing)
    return pid, reading


def start_failure(launch: Launch, said: bytes) -> dict[str, object]:
    """Why the program was not started, by all that came through the pipe; empty if it was."""
    if said.startswith(b"{"):
        return json.loads(said)
    return {"sandbox_failed": NOT_SET_UP} if launch.is_confined and said != ENTERED else {}


# --- in the fork -----------------------------------------------------------------------------------------


def _become(launch: Launch, status: int) -> NoReturn:
    failure: Mapping[str, str] = {"failed": "it could not be prepared"}
    try:
        status = moved_up(status)
        # In the session of its supervisor, where a look finds what it leaves, but no signal meant for it.
        os.setpgid(0, 0)
        resource_limits.apply(launch.broker_policy.bounds)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        heed_polite()
        failure = _exec(launch, status)
    except (OSError, ValueError) as error:
        failure = {"failed": unstartable(error) if isinstance(error, OSError) else str(error)}
    finally:
        os.write(status, json.dumps(failure).encode())
        os._exit(127)


def _exec(launch: Launch, status: int) -> Mapping[str, str]:
    """Replace this fork by the program; returns only on failure, with the reason."""
    job, blamed = launch.job, "sandbox_failed" if launch.is_confined else "failed"
    try:
        os.fchdir(job.cwd)
        cwd = descriptor_path(job.cwd) if launch.is_confined else ""
        for number, descriptor in enumerate((job.stdin, job.stdout, job.stderr)):
            os.dup2(descriptor, number)
        argv = argv_of(launch.broker_policy, launch.request)
        if launch.is_confined:
            os.dup2(status, STATUS_DESCRIPTOR)
            argv = seatbelt.arguments(
                launch.plan,
                ("/bin/sh", "-c", _ENTER, "sh", *argv),
                temporary=launch.temporary,
                cwd=cwd,
                hidden=launch.hidden,
            )
        os.execve(argv[0], argv, _environment(launch))  # noqa: S606  # this fork exists to do this
    except OSError as error:
        if is_out_of_files(error):
            raise
        return {blamed: os.strerror(error.errno or 0)}
    except ValueError as error:
        return {blamed: str(error) if launch.is_confined else "an argument cannot be passed to a program"}


def _environment(launch: Launch) -> Mapping[str, str]:
    given = environment_of(launch.broker_policy, launch.request)
    own = {MARKER: launch.job.marker}
    if not launch.temporary:
        return {**given, **own}
    caches = {name: f"{launch.temporary}/{folder}" for name, folder in CACHES.items()}
    return {**caches, **given, "TMPDIR": launch.temporary, **own}
