"""Forks the process that becomes a program, before the request arrives, to save that time later."""

import contextlib
import fcntl
import json
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Self

from mcp_toolserver.runtime.sandbox.broker import resource_limits
from mcp_toolserver.runtime.sandbox.broker.fd_passing import is_out_of_files, receive, send, unstartable
from mcp_toolserver.runtime.sandbox.broker.messages import Request, Script, decode, encode
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, plan_for
from mcp_toolserver.runtime.sandbox.broker.signals import heed_polite
from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import BwrapArgs
from mcp_toolserver.runtime.sandbox.layers.confinement import LaunchPlan
from mcp_toolserver.runtime.sandbox.layers.environment import helper_environment
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError
from mcp_toolserver.runtime.sandbox.layers.session_namespaces import SessionNamespaces
from mcp_toolserver.runtime.sandbox.layers.spec import Proof

LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""

SCRIPT_DESCRIPTOR = 3

_HIGH_DESCRIPTOR = 10
_OOM_FIRST = b"1000"


@dataclass(frozen=True, kw_only=True)
class ChildStdio:
    """The open descriptors that a program starts with."""

    cwd: int
    stdin: int
    stdout: int
    stderr: int


class ChildLauncher:
    """A forked process that waits for the request it executes."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._orders = control

    @classmethod
    def fork(cls, broker_policy: BrokerPolicy, proof: Proof) -> Self:
        """Fork it from this process, with which it dies.

        Raises:
            OSError: no process can be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _wait(_ChildState(broker_policy=broker_policy, proof=proof, control=theirs), supervisor)
        theirs.close()
        return cls(pid, ours)

    def start(self, request: Request, stdio: ChildStdio, launch_plan: LaunchPlan) -> None:
        """Have it become the program of `request`.

        Raises:
            OSError: it is gone.
        """
        order = os.memfd_create("order")
        try:
            os.write(order, _encode_order(request, launch_plan))
            standard = (stdio.cwd, stdio.stdin, stdio.stdout, stdio.stderr)
            session = launch_plan.session.descriptors if launch_plan.session else ()
            send(self._orders, (order, *standard, *session, *launch_plan.bwrap_args.descriptors))
        finally:
            os.close(order)

    def failure(self) -> dict[str, object]:
        """Why it could not become that, or nothing. Waits until it has or could not."""
        # The end of file is the exec: it closes the other end.
        with self._orders:
            return json.loads(self._orders.recv(4096) or b"{}")

    def dismiss(self) -> None:
        """End the process, and wait for that."""
        self._orders.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _encode_order(request: Request, launch_plan: LaunchPlan) -> bytes:
    fields = {
        "request": encode(request).decode(),
        "template": launch_plan.bwrap_args.template,
        "sockets": launch_plan.bwrap_args.sockets,
        "scratch": launch_plan.scratch,
        "devices": launch_plan.devices,
        "session": len(launch_plan.session.descriptors) if launch_plan.session else 0,
        "hidden": launch_plan.hidden,
    }
    return json.dumps(fields).encode()


def _decode_order(order: bytes, given: list[int]) -> tuple[Request, LaunchPlan]:
    """The request and the way in of `order`, with whose descriptors came those in `given`."""
    fields = json.loads(order)
    session, given = given[: fields["session"]], given[fields["session"] :]
    launch_plan = LaunchPlan(
        session=SessionNamespaces.received(session),
        bwrap_args=BwrapArgs(
            template=tuple(fields["template"]),
            descriptors=tuple(given),
            sockets=tuple(fields["sockets"]),
        ),
        scratch=fields["scratch"],
        devices=fields["devices"],
        hidden=tuple(fields["hidden"]),
    )
    return decode(fields["request"].encode()), launch_plan


# --- in the fork -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _ChildState:
    broker_policy: BrokerPolicy
    proof: Proof
    control: socket.socket


def _wait(state: _ChildState, supervisor: int) -> NoReturn:
    failure = {"failed": "it could not be prepared"}
    control = state.control.detach()
    try:
        control = _moved_up(control)
        _detach_from_supervisor(supervisor)
        resource_limits.apply(state.broker_policy.bounds)
        given = _receive_order(control)
        if not given:
            os._exit(0)
        failure = _exec(state, [_moved_up(descriptor) for descriptor in given])
    except OSError as error:
        failure = {"failed": unstartable(error)}
    finally:
        os.write(control, json.dumps(failure).encode())
        os._exit(127)


def _receive_order(control: int) -> list[int]:
    """Receive the descriptors of the order; none once the other end is closed."""
    with socket.socket(fileno=os.dup(control)) as incoming:
        return receive(incoming)


def _detach_from_supervisor(supervisor: int) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(127)
    os.setsid()
    with contextlib.suppress(OSError):
        kernel.scope_signals()
    heed_polite()


def _exec(state: _ChildState, given: list[int]) -> dict[str, str]:
    """Replace this fork by the program; returns only on failure, with the reason."""
    order, cwd, stdin, stdout, stderr, *entering = given
    request, launch_plan = _decode_order(os.pread(order, os.fstat(order).st_size, 0), entering)
    plan = plan_for(state.broker_policy, state.proof, request)
    if isinstance(plan, str):
        return {"refused": plan}
    try:
        _show_in_proc()
        os.fchdir(cwd)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
        argv = launch_plan.enter(plan, cwd, _argv(state.broker_policy, request))
        own = {**launch_plan.environment, **_working_folder()}
        environment = {**launch_plan.caches, **_environment(state.broker_policy, request), **own}
        os.execve(argv[0], argv, environment)  # noqa: S606  # this fork exists to do this
    except LockError as error:
        return {"sandbox_failed": str(error)}
    except OSError as error:
        if is_out_of_files(error):
            raise
        # What is started behind bubblewrap is bubblewrap.
        blamed = "sandbox_failed" if plan.layer == "bubblewrap" else "failed"
        return {blamed: os.strerror(error.errno or 0)}
    except ValueError:
        return {"failed": "an argument cannot be passed to a program"}


def _show_in_proc() -> None:
    # Dumpable again, or an unprivileged process does not own its /proc files.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    with contextlib.suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(score, _OOM_FIRST)


def _environment(broker_policy: BrokerPolicy, request: Request) -> Mapping[str, str]:
    if isinstance(request, Script):
        return broker_policy.environment
    return helper_environment(broker_policy.environment, request.environment)


def _working_folder() -> Mapping[str, str]:
    """The name of the working folder, for ripgrep, where the kernel tells none: in the temporary folder of a
    session, which is mounted in other namespaces."""
    try:
        os.getcwd()
    except OSError:
        return {"PWD": "/"}
    return {}


def _argv(broker_policy: BrokerPolicy, request: Request) -> tuple[str, ...]:
    if not isinstance(request, Script):
        return request.argv
    script = request.script.encode()
    if len(script) <= LONGEST_ARGUMENT:
        return (*broker_policy.shell, request.script)
    return (*broker_policy.shell, _read_script(script, broker_policy.shell))


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
