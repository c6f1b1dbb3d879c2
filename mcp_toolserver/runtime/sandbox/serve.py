"""The broker: a process with one thread that forks a nanny for each request and does nothing else."""

import contextlib
import gc
import os
import select
import signal
import socket
import time
import traceback
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox import kernel
from mcp_toolserver.runtime.sandbox.charter import Charter, find_shell
from mcp_toolserver.runtime.sandbox.confined import Ground, ground, proven
from mcp_toolserver.runtime.sandbox.guard import Unprotectable, look
from mcp_toolserver.runtime.sandbox.nanny import KILL_SECONDS, Constants, Descriptors, attend
from mcp_toolserver.runtime.sandbox.signals import drain, restore_defaults, wake_on_child_end
from mcp_toolserver.runtime.sandbox.sweep import children, sweep
from mcp_toolserver.runtime.sandbox.walls import Proof, told
from mcp_toolserver.runtime.sandbox.wire import DESCRIPTORS


def serve(requests: socket.socket, charter: Charter) -> NoReturn:
    """Answer `requests` until the server is gone, see every command to its end, and exit."""
    _alone(lambda: _settle_and_serve(requests, charter))


def _alone(work: Callable[[], None]) -> NoReturn:
    """Do `work` in this fork, and nothing that the process it was forked from had still to do."""
    status = 1
    try:
        work()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


def _settle_and_serve(requests: socket.socket, charter: Charter) -> None:
    _keep_only(requests.fileno())
    os.setsid()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    restore_defaults()
    charter = replace(charter, shell=charter.shell or find_shell(charter.environment.get("PATH", "")))
    on, proof = _prepared(charter)
    # A server that is gone is seen at the first request.
    with contextlib.suppress(OSError):
        requests.send(told(proof))
    wake = wake_on_child_end()
    lifeline, held = os.pipe()
    constants = Constants(
        charter=charter,
        proof=proof,
        ground=on,
        lifeline=lifeline,
        broker=os.getpid(),
    )
    gc.freeze()
    _Loop(requests=requests, constants=constants, wake=wake, held=held).run()


def _prepared(charter: Charter) -> tuple[Ground, Proof]:
    nowhere = Ground(roots={}, surveys={})
    try:
        on = ground(charter.walls)
        look(charter.walls, on.roots, on.surveys).close()
        return on, proven(charter)
    except Unprotectable as error:
        return nowhere, Proof(commands="none", helpers="none", stop=str(error))
    except OSError as error:
        why = f"{error.filename} cannot be opened: {error.strerror}"
        return nowhere, Proof(commands="none", helpers="none", reasons=(why,))


def _keep_only(descriptor: int) -> None:
    """Close what came from the server, but `descriptor` and standard error.

    Standard input and output may be the client's: held open here, they would hide the server's death.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(nothing, 2)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))


def _receive(requests: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet and its descriptors, none of which a program inherits. No bytes: the server is gone."""
    received = array("i")
    # socket.recv_fds loses its flags before Python 3.13, and with them MSG_CMSG_CLOEXEC.
    space = socket.CMSG_SPACE(DESCRIPTORS * received.itemsize)
    try:
        message, ancillary, _, _ = requests.recvmsg(64, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
    return message, list(received)


@dataclass(kw_only=True)
class _Loop:
    requests: socket.socket
    constants: Constants
    wake: int
    held: int
    """The other end of the lifeline; its closing tells the nannies that this process is gone."""
    nannies: set[int] = field(default_factory=set[int])

    def run(self) -> None:
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.requests, select.POLLIN)
        serving = True
        while serving:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self.wake in ready:
                self._bury()
            if self.requests.fileno() in ready:
                serving = self._answer()
        os.close(self.held)
        poller.unregister(self.requests)
        patience = time.monotonic() + KILL_SECONDS
        while self._bury() and time.monotonic() < patience:
            poller.poll(KILL_SECONDS * 1000)

    def _answer(self) -> bool:
        """Fork a nanny for the next request; false when the server is gone."""
        message, descriptors = _receive(self.requests)
        if len(descriptors) == DESCRIPTORS:
            self._fork(Descriptors.received(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(message)

    def _fork(self, descriptors: Descriptors) -> None:
        try:
            nanny = os.fork()
        except OSError:
            # The server sees the control socket close with no word on it.
            return
        if nanny:
            self.nannies.add(nanny)
            return
        os.close(self.held)
        self.requests.close()
        _alone(lambda: attend(self.constants, descriptors))

    def _bury(self) -> bool:
        """Reap the dead; false when no child is left.

        A nanny that did not end in order has left its command to this process.
        """
        drain(self.wake)
        orphaned = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            orphaned |= pid not in self.nannies or status != 0
            self.nannies.discard(pid)
        if orphaned:
            self._kill_orphans()
        return True

    def _kill_orphans(self) -> None:
        """Kill what came to this process because its nanny was killed."""
        for orphan in children(os.getpid()) - self.nannies:
            sweep(orphan)
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
