"""The broker: a process with one thread that gives each request to a nanny and does nothing else.

The nanny of the next request is forked before that comes: a fork, and the first steps of a process that
shares its memory with another, take longer than all else that a short command needs. Once there has been a
command, another nanny waits for the next one, with walls that stand already.
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
from mcp_toolserver.runtime.sandbox.wire import COMMAND, DESCRIPTORS, HELPER


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

    def take(self, descriptors: Sequence[int]) -> bool:
        """Whether it took a request; only once."""
        with self.calls, contextlib.suppress(OSError):
            send(self.calls, descriptors)
            return True
        return False


@dataclass(kw_only=True)
class _Loop:
    requests: socket.socket
    constants: Constants
    wake: int
    held: int
    """The other end of the lifeline; its closing tells the nannies that this process is gone."""
    nannies: set[int] = field(default_factory=set[int])
    spares: dict[bytes, _Spare] = field(default_factory=dict[bytes, _Spare])
    """By the kind of request that they wait for."""
    wanted: set[bytes] = field(default_factory=lambda: {HELPER})
    """The kinds for which there should be one."""

    def run(self) -> None:
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.requests, select.POLLIN)
        self._prepare()
        serving = True
        while serving:
            ready = {descriptor for descriptor, _ in poller.poll(None if self._is_prepared() else _PAUSE_MS)}
            if self.wake in ready:
                self._bury()
            if self.requests.fileno() in ready:
                serving = self._answer()
            else:
                self._prepare()
        os.close(self.held)
        for spare in self.spares.values():
            spare.calls.close()
        poller.unregister(self.requests)
        patience = time.monotonic() + KILL_SECONDS
        while self._bury() and time.monotonic() < patience:
            poller.poll(KILL_SECONDS * 1000)

    def _answer(self) -> bool:
        """Give the next request to a nanny; false when the server is gone."""
        kind, descriptors = receive_packet(self.requests)
        self.wanted.add(HELPER)
        if len(descriptors) == DESCRIPTORS and not self._give(kind, descriptors):
            # Those that waited have been killed; if this fails too, the server sees the control socket close
            # with no word on it.
            self._prepare()
            self._give(HELPER, descriptors)
        if kind == COMMAND and self.constants.proof.ahead:
            self.wanted.add(COMMAND)
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(kind)

    def _give(self, kind: bytes, descriptors: Sequence[int]) -> bool:
        """Hand a request to a nanny that waits, for its kind if there is one; false when none waits any more.

        Each serves whatever it gets, so the worst that a wrong kind does is to take longer.
        """
        fitting = (self.spares.pop(one, None) for one in dict.fromkeys((kind, HELPER)))
        return any(spare.take(descriptors) for spare in fitting if spare is not None)

    def _is_prepared(self) -> bool:
        return self.spares.keys() >= self.wanted

    def _prepare(self) -> None:
        """Fork the nannies of the next requests."""
        for kind in sorted(self.wanted - self.spares.keys(), reverse=True):
            self._fork(kind)

    def _fork(self, kind: bytes) -> None:
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
            self.spares[kind] = _Spare(pid=nanny, calls=ours)
            return
        os.close(self.held)
        self.requests.close()
        ours.close()
        for spare in self.spares.values():
            spare.calls.close()
        _alone(lambda: attend(self.constants, theirs, ahead=kind == COMMAND))

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
            for kind, spare in tuple(self.spares.items()):
                if pid == spare.pid:
                    spare.calls.close()
                    del self.spares[kind]
                    # Another might end unasked as well, so the next request is waited for.
                    self.wanted.discard(kind)
        if orphaned:
            self._kill_orphans()
        return True

    def _kill_orphans(self) -> None:
        """Kill what came to this process because its nanny was killed."""
        for orphan in children(os.getpid()) - self.nannies:
            sweep(orphan)
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
