"""The supervisor of a program, as far as it is the same on every system: what ends a program, and what the
server is told of it."""

import abc
import contextlib
import json
import math
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.sandbox.broker.fd_passing import NO_SIGNAL, is_out_of_files, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import drain
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.messages import MAX_REQUEST, Request, Script, decode, encode_event
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, SandboxPlan, plan_for
from mcp_toolserver.runtime.sandbox.broker.resource_limits import Watch, ended_by
from mcp_toolserver.runtime.sandbox.layers.environment import helper_environment
from mcp_toolserver.runtime.sandbox.layers.spec import Proof

_RETRY_SECONDS = 1.0
"""Between attempts to kill what did not die in time."""

LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""

SCRIPT_DESCRIPTOR = 3

_HIGH_DESCRIPTOR = 10


@dataclass(frozen=True)
class Descriptors:
    """The descriptors of a request, in the order in which they come."""

    control: int
    request: int
    cwd: int
    stdin: int
    stdout: int
    stderr: int

    def close_all_but_control(self) -> None:
        """Close them once the program is started: it alone holds its pipes, so that they end with it."""
        for descriptor in (self.request, self.cwd, self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


@dataclass(kw_only=True)
class Supervision(abc.ABC):
    """A program that runs, what it may use, and what ends it."""

    control: socket.socket
    lifeline: int
    """Its end of file is the death of the broker."""
    wake: int
    """Tells of ended children."""
    others: tuple[int, ...] = ()
    """More descriptors to wait for."""
    bounds: CommandBounds
    deadline: float
    """In monotonic time; infinite for none."""
    status: int | None = None
    """The exit status of the program once it has ended."""

    @abc.abstractmethod
    def reap(self) -> object:
        """Wait for children that have ended, and set `status` once the program has."""

    @abc.abstractmethod
    def obey(self) -> bool:
        """Do what the server asks for; false if that is the end, or cannot be done."""

    def first_end(self, watch: Watch) -> tuple[str, str]:
        """Wait for the first thing that ends a command, and name it; with it, the bound that it was over."""
        while True:
            over = watch.look_if_due()
            self.reap()
            if self.status is not None:
                return "exited", ended_by(self.status, self.bounds)
            if over:
                return "over a limit", over
            if time.monotonic() >= self.deadline:
                return "timed out", ""
            if end := self.end_from_outside(self.wait(self.wake, min(watch.due, self.deadline))):
                return end
            drain(self.wake)

    @abc.abstractmethod
    def kill_all(self) -> bool:
        """Kill until no process is left or it takes too long; returns whether none is left."""

    def report(self, end: Mapping[str, object], *, gone: bool) -> None:
        """Tell the server how it ended, and go on killing if not all is gone."""
        event = {"status": self.status, **end}
        send_event(self.control, {name: value for name, value in event.items() if value not in ("", ())})
        while not gone:
            time.sleep(_RETRY_SECONDS)
            gone = self.kill_all()

    def wait(self, descriptor: int, until: float) -> set[int]:
        """Wait for `descriptor`, the server, the broker or another, at most `until` then; returns what is
        ready."""
        poller = select.poll()
        for each in (descriptor, self.control.fileno(), self.lifeline, *self.others):
            poller.register(each, select.POLLIN)
        timeout = None if until == math.inf else max(until - time.monotonic(), 0) * 1000
        return {ready for ready, _ in poller.poll(timeout)}

    def end_from_outside(self, ready: set[int]) -> tuple[str, str] | None:
        """Why somebody else ends a command, if one does."""
        if self.control.fileno() in ready and not self.obey():
            return "stopped", ""
        if self.lifeline in ready:
            return "lost", ""
        return None


def deadline_after(timeout: float | None) -> float:
    """In monotonic time; infinite for None."""
    return math.inf if timeout is None else time.monotonic() + timeout


def planned(
    file: int, broker_policy: BrokerPolicy, proof: Proof
) -> tuple[Request, SandboxPlan] | dict[str, object]:
    """The request in an anonymous file, and its sandbox; or the report on why it is refused."""
    try:
        request = decode(os.pread(file, min(os.fstat(file).st_size, MAX_REQUEST), 0))
    except ValueError:
        return {"refused": "the request cannot be read"}
    plan = plan_for(broker_policy, proof, request)
    return {"refused": plan} if isinstance(plan, str) else (request, plan)


def preparation_failure(error: Exception) -> dict[str, object]:
    if isinstance(error, OSError) and is_out_of_files(error):
        return {"failed": unstartable(error)}
    return {"sandbox_failed": str(error)}


def send_event(control: socket.socket, event: Mapping[str, object]) -> None:
    """Tell the server. One that died does not listen any more."""
    with contextlib.suppress(OSError):
        control.sendall(encode_event(event), NO_SIGNAL)


def exit_status(status: int) -> int:
    """The status that `os.waitpid` gave as a shell has it: 0-255, or 128 + signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


# --- in the fork that becomes the program ----------------------------------------------------------------


def become(report: int, start: Callable[[int], Mapping[str, str]]) -> NoReturn:
    """Have `start` replace this fork by a program, or else write why it could not to `report`, whose final
    number it gets, and exit."""
    failure: Mapping[str, str] = {"failed": "it could not be prepared"}
    try:
        report = moved_up(report)
        failure = start(report)
    except OSError as error:
        failure = {"failed": unstartable(error)}
    except ValueError as error:
        failure = {"failed": str(error)}
    finally:
        os.write(report, json.dumps(failure).encode())
        os._exit(127)


def environment_of(broker_policy: BrokerPolicy, request: Request) -> Mapping[str, str]:
    if isinstance(request, Script):
        return broker_policy.environment
    helper = broker_policy.helper_for(request.argv)
    environment = {**broker_policy.environment, **(helper.environment if helper else {})}
    return helper_environment(environment, request.environment)


def argv_of(broker_policy: BrokerPolicy, request: Request) -> tuple[str, ...]:
    """The arguments of the program. A script too long for one waits in `SCRIPT_DESCRIPTOR` afterwards."""
    if not isinstance(request, Script):
        return request.argv
    script = request.script.encode()
    if len(script) <= LONGEST_ARGUMENT:
        return (*broker_policy.shell, request.script)
    return (*broker_policy.shell, _read_script(script, broker_policy.shell))


def _read_script(script: bytes, shell: tuple[str, ...]) -> str:
    """A script that runs the one too long for an argument, out of a descriptor that it closes first."""
    os.dup2(anonymous_file("script", script), SCRIPT_DESCRIPTOR)
    os.set_inheritable(SCRIPT_DESCRIPTOR, True)
    # Bash reads a file without help; another shell needs cat.
    read = f"</dev/fd/{SCRIPT_DESCRIPTOR}" if "--norc" in shell else f"cat <&{SCRIPT_DESCRIPTOR}"
    return f'eval "exec {SCRIPT_DESCRIPTOR}<&-\n$({read})"'


def moved_up(descriptor: int) -> int:
    """`descriptor` under a number out of the way of those that the program gets."""
    if descriptor >= _HIGH_DESCRIPTOR:
        return descriptor
    # Not everywhere where this module is imported, but wherever there is a broker.
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    os.close(descriptor)
    return moved
