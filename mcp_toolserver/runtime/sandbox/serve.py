"""The broker: a process with one thread that gives each request to a nanny and does nothing else.

The nanny of the next request is forked before that comes: a fork, and the first steps of a process that
shares its memory with another, take longer than all else that a short command needs.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox import kernel
from mcp_toolserver.runtime.sandbox.charter import Charter, find_shell
from mcp_toolserver.runtime.sandbox.confined import Ground, ground, proven
from mcp_toolserver.runtime.sandbox.devices import fixed_devices
from mcp_toolserver.runtime.sandbox.guard import Unprotectable, look
from mcp_toolserver.runtime.sandbox.nanny import KILL_SECONDS, Constants, attend
from mcp_toolserver.runtime.sandbox.passing import receive_packet, send
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
        proof = proven(charter)
        return replace(on, devices=fixed_devices() if proof.commands == "bubblewrap" else -1), proof
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


_PAUSE_MS = 100
"""A fork slows down the command that was just started, so the next nanny waits for its end, or for this."""


@dataclass(frozen=True, kw_only=True)
class _Spare:
    """A nanny that waits for its request."""

    pid: int
    calls: socket.socket


@dataclass(kw_only=True)
class _Loop:
    requests: socket.socket
    constants: Constants
    wake: int
    held: int
    """The other end of the lifeline; its closing tells the nannies that this process is gone."""
    nannies: set[int] = field(default_factory=set[int])
    spare: _Spare | None = None

    def run(self) -> None:
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.requests, select.POLLIN)
        self._prepare()
        serving = True
        while serving:
            ready = {descriptor for descriptor, _ in poller.poll(None if self.spare else _PAUSE_MS)}
            if self.wake in ready:
                self._bury()
            if self.requests.fileno() in ready:
                serving = self._answer()
            else:
                self._prepare()
        os.close(self.held)
        if self.spare is not None:
            self.spare.calls.close()
        poller.unregister(self.requests)
        patience = time.monotonic() + KILL_SECONDS
        while self._bury() and time.monotonic() < patience:
            poller.poll(KILL_SECONDS * 1000)

    def _answer(self) -> bool:
        """Give the next request to a nanny; false when the server is gone."""
        message, descriptors = receive_packet(self.requests)
        if len(descriptors) == DESCRIPTORS and not self._give(descriptors):
            # The one that waited has been killed; if this fails too, the server sees the control socket close
            # with no word on it.
            self._prepare()
            self._give(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(message)

    def _give(self, descriptors: Sequence[int]) -> bool:
        """Hand a request to the nanny that waits; false when there is none any more."""
        spare, self.spare = self.spare, None
        if spare is None:
            return False
        with spare.calls, contextlib.suppress(OSError):
            send(spare.calls, descriptors)
            return True
        return False

    def _prepare(self) -> None:
        """Fork the nanny of the next request."""
        if self.spare is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            nanny = os.fork()
        except OSError:
            # It is tried again when there is a request.
            ours.close()
            theirs.close()
            return
        if nanny:
            theirs.close()
            self.nannies.add(nanny)
            self.spare = _Spare(pid=nanny, calls=ours)
            return
        os.close(self.held)
        self.requests.close()
        ours.close()
        _alone(lambda: attend(self.constants, theirs))

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
            if self.spare is not None and pid == self.spare.pid:
                self.spare.calls.close()
                self.spare = None
        if orphaned:
            self._kill_orphans()
        return True

    def _kill_orphans(self) -> None:
        """Kill what came to this process because its nanny was killed."""
        for orphan in children(os.getpid()) - self.nannies:
            sweep(orphan)
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
