"""The loop of a broker, as far as it is the same on every system: messages, sessions, ended children."""

import abc
import contextlib
import gc
import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mcp_toolserver.runtime.sandbox.broker import fd_passing, fork, messages
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, find_shell
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, encode_proof
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable


def set_up(requests: socket.socket, broker_policy: BrokerPolicy) -> tuple[fd_passing.Reserve, BrokerPolicy]:
    """Make this fork the leader of a session, with nothing of the server but `requests` and standard error;
    returns a reserved descriptor, and the policy with a shell."""
    fork.close_all_but(requests.fileno())
    # Early, so that its number is below any limit that a broker can work with.
    reserve = fd_passing.Reserve()
    os.setsid()
    fork.restore_defaults()
    shell = broker_policy.shell or find_shell(broker_policy.environment.get("PATH", ""))
    return reserve, replace(broker_policy, shell=shell)


@dataclass(kw_only=True)
class BrokerLoop(abc.ABC):
    """What a broker does with each message and with each child that has ended."""

    requests: socket.socket
    reserve: fd_passing.Reserve
    wake: int = field(default_factory=fork.wake_on_child_end)
    lifeline_end: int
    """The other end of the lifeline; its closing tells the supervisors that this process is gone."""
    roots: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    """What they match is hidden from commands."""
    running: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """By supervisor, the session that its command belongs to."""
    idle: set[bytes] = field(default_factory=set[bytes])
    """Sessions that end once no command of theirs runs."""

    def run(self, proof: Proof, kill_seconds: float) -> None:
        """Report `proof`, and serve until the server is gone; then wait for the supervisors, at most
        `kill_seconds`."""
        # A server that is gone is seen at the first request.
        with contextlib.suppress(OSError):
            self.requests.sendall(encode_proof(proof))
        gc.freeze()
        # Ready before it is asked for.
        self.prepare()
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.requests, select.POLLIN)
        serving = True
        while serving:
            ready = {descriptor for descriptor, _ in poller.poll(self.pause())}
            if self.wake in ready:
                self.reap_children()
            if self.requests.fileno() in ready:
                serving = self._answer()
            else:
                self.prepare()
        poller.unregister(self.requests)
        os.close(self.lifeline_end)
        self.let_go()
        deadline = time.monotonic() + kill_seconds
        while self.reap_children() and time.monotonic() < deadline:
            poller.poll(kill_seconds * 1000)

    def pause(self) -> int | None:
        """Milliseconds to wait for a message before `prepare`; None to wait for one."""
        return None

    def prepare(self) -> None:
        """Prepare for the next request, if there is anything to prepare."""
        return

    def let_go(self) -> None:
        """Close what keeps processes alive that serve no request."""
        return

    def acknowledge(self) -> None:
        """Answer a message, where the server waits for that."""
        return

    def _answer(self) -> bool:
        """Do what the next message asks for; false when the server is gone."""
        self.reserve.release()
        try:
            message, descriptors = fd_passing.receive_packet(self.requests)
        except fd_passing.Truncated as error:
            if error.message[:1] == messages.HIDE:
                # Without the patterns, commands would see what is to be hidden.
                raise
            message, descriptors = error.message, error.descriptors
            for control in descriptors[:1]:
                fd_passing.refuse(control, fd_passing.unstartable(error))
        self._take(message[:1], message[1:], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.acknowledge()
        self.reserve.renew()
        return bool(message)

    def _take(self, kind: bytes, session: bytes, descriptors: Sequence[int]) -> None:
        """Do what a message asks for; nothing where its descriptors did not come."""
        if session and not session.isalnum():
            # It becomes the name of a folder.
            return
        match kind, len(descriptors):
            case messages.HIDE, _:
                self.hide(descriptors)
            case messages.REQUEST, messages.DESCRIPTORS:
                self.serve(descriptors, session)
            case messages.TEMPORARY, 1:
                self.send_temporary(descriptors[0], session)
            case messages.CONNECTIONS, 1:
                self.report_connections(descriptors[0])
            case messages.END, _:
                self.end_session(session)
            case messages.END_UNUSED, _:
                self.idle.add(session)
                self.end_idle()
            case _:
                pass

    def report_connections(self, to: int) -> None:
        """Have the proxy report on the socket `to`, where there is a proxy."""
        return

    @abc.abstractmethod
    def serve(self, descriptors: Sequence[int], session: bytes) -> None:
        """Give a request of `session` to a supervisor, or refuse it."""

    @abc.abstractmethod
    def open_temporary(self, session: bytes) -> int | None:
        """Open the temporary folder of a session, which starts with this; None if its commands share none.

        Raises:
            OSError: it cannot be opened.
        """

    @abc.abstractmethod
    def end_session(self, session: bytes) -> None:
        """Let go of a session. What it shares goes with the last of its commands."""

    @abc.abstractmethod
    def set_hidden(self, hidden: HiddenPaths) -> None:
        """Hide these from the next command."""

    @abc.abstractmethod
    def reap_children(self) -> bool:
        """Reap the dead; false when no child is left.

        A supervisor that did not end in order has left its command to this process.
        """

    def hide(self, descriptors: Sequence[int]) -> None:
        """Add the patterns in the received file to those of hidden paths.

        Raises:
            ValueError: no valid patterns came. This process must not go on without them.
        """
        (file,) = descriptors
        self.patterns += messages.decode_patterns(os.pread(file, os.fstat(file).st_size, 0))
        hidden = HiddenPaths(self.patterns)
        # Found once here, it is found sooner in each fork. Where it cannot be found, each command fails.
        with contextlib.suppress(Unprotectable, OSError):
            hidden.find(self.roots, self.roots)
        self.set_hidden(hidden)

    def send_temporary(self, to: int, session: bytes) -> None:
        """Pass on the temporary folder of a session, or nothing, and close the socket `to`."""
        # The server may be gone, and what came may be no socket.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(to)) as answer:
            folder = self.open_temporary(session)
            if folder is not None:
                try:
                    fd_passing.send(answer, (folder,))
                finally:
                    os.close(folder)

    def end_idle(self) -> None:
        """End the sessions that wait for it and of which no command runs."""
        for session in self.idle.difference(self.running.values()):
            self.idle.discard(session)
            self.end_session(session)

    def ended_children(self) -> tuple[list[tuple[int, int]], bool]:
        """Reap the dead; returns each with its status, and whether a child is left."""
        fork.drain(self.wake)
        ended: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended, False
            if pid == 0:
                return ended, True
            self.running.pop(pid, None)
            ended.append((pid, status))
