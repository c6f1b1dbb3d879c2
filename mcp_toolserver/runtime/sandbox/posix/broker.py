"""The broker on POSIX systems: a process with one thread that forks a supervisor for each request."""

import contextlib
import errno
import gc
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker import messages
from mcp_toolserver.runtime.sandbox.broker.fd_passing import NO_SIGNAL, Reserve, refuse, send, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import close_all_but, run_in_fork
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, find_shell
from mcp_toolserver.runtime.sandbox.broker.signals import drain, restore_defaults, wake_on_child_end
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, encode_proof
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.posix import folders
from mcp_toolserver.runtime.sandbox.posix.frames import RECEIVED, Received, receive_frame
from mcp_toolserver.runtime.sandbox.posix.killing import KILL_SECONDS
from mcp_toolserver.runtime.sandbox.posix.process_list import Unlisted, list_processes
from mcp_toolserver.runtime.sandbox.posix.proving import prove_layer
from mcp_toolserver.runtime.sandbox.posix.supervisor import Constants, Job, end_what_is_left, supervise
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable


def serve(requests: socket.socket, broker_policy: BrokerPolicy, folder: str) -> NoReturn:
    """Serve `requests` until the server is gone, wait for the end of every command, and exit.

    `folder` is the `broker_folder` for temporary files.
    """
    run_in_fork(lambda: _set_up_and_serve(requests, broker_policy, folder))


def _set_up_and_serve(requests: socket.socket, broker_policy: BrokerPolicy, folder: str) -> None:
    close_all_but(requests.fileno())
    # Early, so that its number is below any limit that a broker can work with.
    reserve = Reserve()
    os.setsid()
    restore_defaults()
    # macOS has no flag of send that suppresses it.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    broker_policy = replace(
        broker_policy, shell=broker_policy.shell or find_shell(broker_policy.environment.get("PATH", ""))
    )
    lifeline, lifeline_end = os.pipe()
    constants = Constants(
        broker_policy=broker_policy,
        proof=Proof(commands="none", helpers="none"),
        lifeline=lifeline,
        reserve=reserve,
        folders=None,
        unwatchable=_unwatchable(),
    )
    constants = prove_layer(constants, folder)
    # A server that is gone is seen at the first request.
    with contextlib.suppress(OSError):
        requests.sendall(encode_proof(constants.proof) + b"\n")
    wake = wake_on_child_end()
    gc.freeze()
    _Loop(requests=requests, constants=constants, wake=wake, lifeline_end=lifeline_end).run()


def _unwatchable() -> str:
    try:
        list_processes()
    except Unlisted as error:
        return str(error)
    return ""


@dataclass(kw_only=True)
class _Loop:
    requests: socket.socket
    constants: Constants
    wake: int
    lifeline_end: int
    """The other end of the lifeline; its closing tells the supervisors that this process is gone."""
    markers: dict[int, str] = field(default_factory=dict[int, str])
    """By supervisor, the marker of its command."""
    running: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """By supervisor, the session that its command belongs to."""
    sessions: set[bytes] = field(default_factory=set[bytes])
    """Sessions with a folder."""
    ended: set[bytes] = field(default_factory=set[bytes])
    """Sessions that end once no command of theirs runs."""
    patterns: tuple[str, ...] = ()
    """What they match is hidden from commands."""

    def run(self) -> None:
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.requests, select.POLLIN)
        serving = True
        while serving:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self.wake in ready:
                self._reap_children()
            if self.requests.fileno() in ready:
                serving = self._answer()
        poller.unregister(self.requests)
        os.close(self.lifeline_end)
        deadline = time.monotonic() + 2 * KILL_SECONDS
        while self._reap_children() and time.monotonic() < deadline:
            poller.poll(KILL_SECONDS * 1000)
        if self.constants.folders is not None:
            folders.remove(self.constants.folders.path)

    def _answer(self) -> bool:
        """Do what the next frame asks for; false when the server is gone."""
        self.constants.reserve.release()
        received = receive_frame(self.requests)
        if received is None:
            return False
        # Of patterns the server is to know that they are in use.
        if received.frame.kind == messages.HIDE:
            self._take(received)
            self._acknowledge()
        else:
            self._acknowledge()
            self._take(received)
        for descriptor in received.descriptors:
            os.close(descriptor)
        self.constants.reserve.renew()
        return True

    def _acknowledge(self) -> None:
        # A server that is gone is seen at the next frame.
        with contextlib.suppress(OSError):
            self.requests.send(RECEIVED, NO_SIGNAL | socket.MSG_DONTWAIT)

    def _take(self, received: Received) -> None:
        session = received.frame.session
        match received.frame.kind, len(received.descriptors):
            case messages.HIDE, _:
                self._hide(received)
            case messages.REQUEST, messages.DESCRIPTORS if received.is_complete:
                self._serve(received.descriptors, session)
            case messages.REQUEST, count if count and not received.is_complete:
                refuse(received.descriptors[0], unstartable(OSError(errno.EMFILE, "")))
            case messages.TEMPORARY, 1:
                self._send_temporary(received.descriptors[0], session)
            case messages.END | messages.END_UNUSED, _:
                # What a command still uses is removed when it has ended.
                self._end_session(session)
            case _:
                # Its descriptors did not come; the server sees that its socket is closed.
                pass

    def _serve(self, descriptors: list[int], session: bytes) -> None:
        """Give a request of `session` to a new supervisor, or refuse it."""
        control, request, cwd, stdin, stdout, stderr = descriptors
        marker = secrets.token_hex(16)
        try:
            job = Job(
                control=control,
                request=request,
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                marker=marker,
                session_folder=self._folder(session),
            )
            supervisor = os.fork()
        except OSError as error:
            refuse(control, unstartable(error))
            return
        if supervisor == 0:
            self._leave_to_fork()
            run_in_fork(lambda: supervise(self.constants, job))
        self.markers[supervisor] = marker
        self.running[supervisor] = session

    def _leave_to_fork(self) -> None:
        """Close what only the broker uses."""
        os.close(self.lifeline_end)
        self.requests.close()

    def _folder(self, session: bytes) -> str:
        """The temporary folder of a session; empty where its commands share none. Raises: OSError."""
        if not session or self.constants.folders is None or not self.constants.proof.shares_session:
            return ""
        self.ended.discard(session)
        folder = self.constants.folders.of_session(session.decode("ascii"))
        self.sessions.add(session)
        return folder

    def _send_temporary(self, to: int, session: bytes) -> None:
        """Pass on the temporary folder of a session, or nothing, and close the socket `to`."""
        # The server may be gone, and what came may be no socket.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(to)) as answer:
            if path := self._folder(session):
                folder = folders.opened(path)
                try:
                    send(answer, (folder,))
                finally:
                    os.close(folder)

    def _end_session(self, session: bytes) -> None:
        if session in self.sessions:
            self.ended.add(session)
            self._end_sessions()

    def _end_sessions(self) -> None:
        """Remove the folders of ended sessions of which no command runs."""
        for session in self.ended.difference(self.running.values()):
            self.ended.discard(session)
            self.sessions.discard(session)
            assert self.constants.folders is not None
            # Under another name, so that it does not meet a session that begins anew.
            folder = self.constants.folders.of_session(session.decode("ascii"))
            aside = f"{folder}-{secrets.token_hex(16)}"
            with contextlib.suppress(OSError):
                os.rename(folder, aside)
                self._apart(lambda aside=aside: folders.remove(aside))

    def _apart(self, work: Callable[[], None]) -> None:
        """Do what may take time in a process of its own. Raises: OSError: no process can be started."""
        pid = os.fork()
        if pid == 0:
            self._leave_to_fork()
            run_in_fork(work)

    def _hide(self, received: Received) -> None:
        """Add the patterns in the received file to those of hidden paths.

        Raises:
            ValueError: no valid patterns came. This process must not go on without them.
        """
        if not received.is_complete or len(received.descriptors) != 1:
            raise ValueError("the patterns of hidden paths did not come")
        (file,) = received.descriptors
        self.patterns += messages.decode_patterns(os.pread(file, os.fstat(file).st_size, 0))
        hidden = HiddenPaths(self.patterns)
        roots = self.constants.broker_policy.sandbox.roots
        # Found once here, it is found sooner in each fork. Where it cannot be found, each command fails.
        with contextlib.suppress(Unprotectable, OSError):
            hidden.find(roots, roots)
        self.constants = replace(self.constants, hidden=hidden)

    def _reap_children(self) -> bool:
        """Reap the dead; false when no child is left.

        A supervisor that did not end in order has left its command to this process.
        """
        drain(self.wake)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._end_sessions()
                return False
            if pid == 0:
                break
            marker = self.markers.pop(pid, None)
            self.running.pop(pid, None)
            if marker is not None and status != 0:
                with contextlib.suppress(OSError):
                    self._apart(lambda pid=pid, marker=marker: end_what_is_left(pid, marker))
        self._end_sessions()
        return True
