"""Forks the process that becomes a program, before the request arrives, to save that time later."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from typing import Self

from mcp_toolserver.runtime.sandbox.broker import resource_limits, supervision
from mcp_toolserver.runtime.sandbox.broker.fd_passing import is_out_of_files, receive, send
from mcp_toolserver.runtime.sandbox.broker.fork import handle_polite
from mcp_toolserver.runtime.sandbox.broker.messages import Request, decode, encode
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, plan_for
from mcp_toolserver.runtime.sandbox.layers import kernel, landlock
from mcp_toolserver.runtime.sandbox.layers.confinement import LaunchPlan
from mcp_toolserver.runtime.sandbox.layers.environment import with_temporary
from mcp_toolserver.runtime.sandbox.layers.namespaces import SessionNamespaces
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, with_tuples

_OOM_FIRST = b"1000"


class ChildLauncher:
    """A forked process that waits for the request it executes."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._orders = control

    @classmethod
    def fork(cls, broker_policy: BrokerPolicy, proof: Proof) -> Self:
        """Fork it from this process, with which it dies. Raises: OSError: no process can be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            supervision.become(
                theirs.detach(), lambda orders: _wait_and_exec(orders, supervisor, broker_policy, proof)
            )
        theirs.close()
        return cls(pid, ours)

    def start(self, request: Request, descriptors: supervision.Descriptors, launch_plan: LaunchPlan) -> None:
        """Have it become the program of `request`. Raises: OSError: it is gone."""
        order = os.memfd_create("order")
        try:
            os.write(order, _encode_order(request, launch_plan))
            standard = (descriptors.cwd, descriptors.stdin, descriptors.stdout, descriptors.stderr)
            session = launch_plan.session.descriptors if launch_plan.session else ()
            send(self._orders, (order, *standard, *session, *launch_plan.descriptors))
        finally:
            os.close(order)

    def failure(self) -> dict[str, object]:
        """Why it could not become that, or nothing. Waits until it has or could not."""
        # The end of file is the exec: it closes the other end.
        with self._orders:
            return json.loads(self._orders.recv(4096) or b"{}")

    def dismiss(self) -> None:
        self._orders.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _encode_order(request: Request, launch_plan: LaunchPlan) -> bytes:
    session = launch_plan.session
    fields = {**vars(launch_plan), "session": len(session.descriptors) if session else 0}
    return json.dumps([encode(request).decode(), fields]).encode()


def _decode_order(order: bytes, given: list[int]) -> tuple[Request, LaunchPlan]:
    """The request and the way in of `order`, with whose descriptors came those in `given`."""
    request, fields = json.loads(order)
    count = fields["session"]
    numbers = iter(given[count:])
    fields["session"] = SessionNamespaces.received(given[:count])
    fields["bwrap_args"] = [next(numbers) if isinstance(word, int) else word for word in fields["bwrap_args"]]
    return decode(request.encode()), LaunchPlan(**with_tuples(fields))


# --- in the fork -----------------------------------------------------------------------------------------


def _wait_and_exec(
    orders: int, supervisor: int, broker_policy: BrokerPolicy, proof: Proof
) -> Mapping[str, str]:
    """Replace this fork by the program that `orders` tells; returns only on failure, with the reason."""
    _detach_from_supervisor(supervisor, proof)
    resource_limits.apply(broker_policy.bounds)
    with socket.socket(fileno=os.dup(orders)) as incoming:
        given = receive(incoming)
    if not given:
        os._exit(0)
    return _exec(broker_policy, proof, [supervision.moved_up(descriptor) for descriptor in given])


def _detach_from_supervisor(supervisor: int, proof: Proof) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(127)
    os.setsid()
    scope_signals(proof)
    handle_polite(signal.SIG_DFL)


def scope_signals(proof: Proof) -> bool:
    """Narrow whom this process, and all it starts, can signal; whether that was done.

    Behind bubblewrap a command has process ids of its own.
    """
    if proof.commands == "bubblewrap":
        return False
    try:
        landlock.scope_signals(moves=proof.commands == "landlock")
    except OSError:
        return False
    return True


def _exec(broker_policy: BrokerPolicy, proof: Proof, given: list[int]) -> Mapping[str, str]:
    order, cwd, stdin, stdout, stderr, *entering = given
    request, launch_plan = _decode_order(os.pread(order, os.fstat(order).st_size, 0), entering)
    plan = plan_for(broker_policy, proof, request)
    if isinstance(plan, str):
        return {"refused": plan}
    try:
        _show_in_proc()
        os.fchdir(cwd)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
        argv = launch_plan.enter(plan, cwd, supervision.argv_of(broker_policy, request))
        environment = with_temporary(
            supervision.environment_of(broker_policy, request),
            launch_plan.scratch,
            launch_plan.caches,
            downloads=plan.sandbox.network or bool(plan.sandbox.hosts),
        )
        os.execve(argv[0], argv, environment | _working_folder())  # noqa: S606  # this fork exists to do this
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


def _working_folder() -> dict[str, str]:
    """The name of the working folder, for ripgrep, where the kernel tells none: in the temporary folder of a
    session, which is mounted in other namespaces."""
    try:
        os.getcwd()
    except OSError:
        return {"PWD": "/"}
    return {}
