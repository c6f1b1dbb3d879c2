"""The process that verifies protected names, and a supervisor's connection to it.

The broker forks it once. It is a process of its own because a scan of many folders would delay other
requests; it outlives the broker until every supervisor has reported.
"""

import json
import os
import select
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypedDict

from mcp_toolserver.runtime.sandbox.broker.fd_passing import Truncated, is_out_of_files, receive, send
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.protected.folder_scan import FolderScan
from mcp_toolserver.runtime.sandbox.protected.snapshot import (
    ProtectedPath,
    Role,
    TooMany,
    Unprotectable,
)
from mcp_toolserver.runtime.sandbox.protected.thread_activity import activity_of
from mcp_toolserver.runtime.sandbox.protected.verifier import Verifier, Watched

ORPHANED_SECONDS = 10.0
"""How long a command whose supervisor died is taken to be still running: the broker kills it meanwhile."""


class Message(TypedDict, total=False):
    """A question of a supervisor, an answer to it, or a notice."""

    mounted: bool
    """The first message, from the broker: whether protected places are mounted read-only for commands."""
    ask: Literal["places", "begin", "check", "end"]
    supervisor: int
    """Process id, when a command begins."""
    session: str
    """The name of its session; empty if it belongs to none."""
    roots: list[str]
    """Where it can write."""
    places: list[tuple[str, str, Role]]
    """Root, path and role of what has to be protected."""
    notes: list[str]
    refused: str
    """Why there is no answer."""
    stop: str
    """Why the command has to be stopped."""
    notice: bool
    """It is no answer: there are notes, or a reason to stop."""


class Unverified(Exception):
    """The process is gone: nothing is known of protected names any more."""


class Verification:
    """The connection of one supervisor."""

    def __init__(self, calls: socket.socket) -> None:
        """Connect through `calls`, the broker's end of the way to the process.

        Raises:
            Unverified: it is gone.
        """
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.uncovered = ""
        """Why the command has to be stopped; empty as long as it need not be."""
        self._notes: tuple[str, ...] = ()
        with theirs:
            try:
                send(calls, (theirs.fileno(),))
            except OSError:
                self._ours.close()
                raise Unverified from None

    def fileno(self) -> int:
        """Readable when there is something for `receive_notice`."""
        return self._ours.fileno()

    def places(self) -> tuple[ProtectedPath, ...]:
        """What was protected at the last check.

        Raises:
            Unverified.
            OSError: too many files are open; also raised by the other questions.
        """
        return self._places_of(self._asked({"ask": "places"}))

    def begin(self, roots: Iterable[str], session: str) -> tuple[ProtectedPath, ...]:
        """Announce a command of `session` that will be a descendant of this process and can write in `roots`:
        what has to be protected from it.

        Raises:
            Unverified, Unprotectable.
        """
        message: Message = {"ask": "begin", "supervisor": os.getpid(), "session": session}
        return self._places_of(self._asked({**message, "roots": list(roots)}))

    def check(self) -> tuple[str, ...]:
        """Have the roots checked now: what there is to report, in sentences.

        Raises:
            Unverified.
        """
        answer = self._asked({"ask": "check"})
        self._take(answer)
        return self.take_notes()

    def end(self) -> tuple[str, ...]:
        """As `check`, for the last time: everything that the command started is gone.

        Raises:
            Unverified.
        """
        self._take(self._asked({"ask": "end"}))
        return self.take_notes()

    def receive_notice(self) -> None:
        """Take a notice, if there is one. If that fails, the caller has to stop the command as well."""
        waiting = select.poll()
        waiting.register(self._ours, select.POLLIN)
        if not waiting.poll(0):
            # A check has taken it together with its own answer.
            return
        try:
            message = _receive_message(self._ours)
        except OSError:
            message = None
        if message is None:
            self.uncovered = "the process that verifies protected names has ended. Restart the server"
        else:
            self._take(message)

    def take_notes(self) -> tuple[str, ...]:
        """Take the notes so far, in sentences; returns each once."""
        notes, self._notes = self._notes, ()
        return notes

    def _take(self, message: Message) -> None:
        self._notes += tuple(message.get("notes", ()))
        self.uncovered = self.uncovered or message.get("stop", "")

    def close(self) -> None:
        """Let go of it. A command that has begun and not ended counts as running for a while."""
        self._ours.close()

    def _asked(self, message: Message) -> Message:
        try:
            _send_message(self._ours, message)
            answer = _receive_message(self._ours)
            while answer is not None and answer.get("notice"):
                self._take(answer)
                answer = _receive_message(self._ours)
        except OSError as error:
            if is_out_of_files(error):
                raise
            raise Unverified from None
        if answer is None:
            raise Unverified
        return answer

    def _places_of(self, answer: Message) -> tuple[ProtectedPath, ...]:
        if (why := answer.get("refused")) is not None:
            raise Unprotectable(why)
        return tuple(
            ProtectedPath(root=root, path=path, role=role) for root, path, role in answer.get("places", ())
        )


def _send_message(to: socket.socket, message: Message) -> None:
    """Send a message of any size: it lies in an anonymous file, because a packet has a limit.

    Raises:
        OSError: the other end is gone.
    """
    body = os.memfd_create("message")
    try:
        with os.fdopen(body, "wb", closefd=False) as file:
            file.write(json.dumps(message).encode())
        send(to, (body,))
    finally:
        os.close(body)


def _receive_message(source: socket.socket) -> Message | None:
    """The next message; None when the other end is gone."""
    received = receive(source)
    if not received:
        return None
    with os.fdopen(received[0], "rb") as file:
        file.seek(0)
        return json.loads(file.read())


# --- the process -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Client:
    """A supervisor."""

    socket: socket.socket
    watched: Watched | None = None


@dataclass
class _Service:
    calls: socket.socket
    verifier: Verifier
    clients: dict[int, _Client] = field(default_factory=dict[int, _Client])
    """By descriptor."""
    orphans: dict[Watched, float] = field(default_factory=dict[Watched, float])
    """Commands whose supervisor died, each with the time when it counts as ended."""
    is_open: bool = True
    """Whether anybody may still connect."""

    def run(self) -> None:
        poller = select.poll()
        poller.register(self.calls, select.POLLIN)
        while self.is_open or self.clients or self.orphans:
            wait = max(self.verifier.due - time.monotonic(), 0) * 1000 if self.verifier.is_busy else None
            for descriptor, _ in poller.poll(wait):
                if descriptor == self.calls.fileno():
                    self._connect(poller)
                else:
                    self._serve(descriptor, poller)
            # A command that begins or ends has the roots checked as well.
            if self.verifier.is_busy and time.monotonic() >= self.verifier.due:
                self.verifier.check()
            self._notify()

    def _connect(self, poller: select.poll) -> None:
        try:
            received = receive(self.calls)
        except Truncated:
            # Whoever wanted to connect sees the other end closed.
            return
        if not received:
            self.is_open = False
            poller.unregister(self.calls)
            return
        client = _Client(socket.socket(fileno=received[0]))
        self.clients[received[0]] = client
        poller.register(received[0], select.POLLIN)

    def _serve(self, descriptor: int, poller: select.poll) -> None:
        client = self.clients[descriptor]
        try:
            message = _receive_message(client.socket)
            if message is not None:
                _send_message(client.socket, self._answer(client, message))
                return
        except OSError:
            pass
        poller.unregister(descriptor)
        del self.clients[descriptor]
        client.socket.close()
        if client.watched is not None:
            client.watched.sample = lambda: None
            self.orphans[client.watched] = time.monotonic() + ORPHANED_SECONDS

    def _answer(self, client: _Client, message: Message) -> Message:
        match message.get("ask"), client.watched:
            case "begin", _:
                return self._begin(client, message)
            case "check", Watched() as watched:
                self.verifier.check()
                return self._news(watched)
            case "end", Watched() as watched:
                client.watched = None
                return {"notes": list(self.verifier.end(watched))}
            case _:
                return _listing(self.verifier.places())

    def _news(self, watched: Watched) -> Message:
        """What there is to report of a command, and why to stop it; both once."""
        stop, watched.uncovered = watched.uncovered, ""
        return {"notes": list(self.verifier.take_notes(watched)), "stop": stop}

    def _begin(self, client: _Client, message: Message) -> Message:
        sample = partial(activity_of, message.get("supervisor", 0))
        try:
            client.watched, places = self.verifier.begin(
                message.get("roots", ()), sample, message.get("session", "")
            )
        except TooMany as error:
            return {"refused": str(error)}
        return _listing(places)

    def _notify(self) -> None:
        """Tell supervisors what there is to report and to stop, and forget those that died."""
        for client in self.clients.values():
            if client.watched is not None and (client.watched.notes or client.watched.uncovered):
                message = self._news(client.watched)
                with suppress(OSError):
                    _send_message(client.socket, {**message, "notice": True})
        for watched, until in tuple(self.orphans.items()):
            if time.monotonic() >= until:
                del self.orphans[watched]
                self.verifier.end(watched)


def _listing(places: Iterable[ProtectedPath]) -> Message:
    return {"places": [(place.root, place.path, place.role) for place in places]}


def serve(calls: socket.socket, sandbox: SandboxSpec, roots: Mapping[str, int]) -> None:
    """Scan the roots, wait for the message of `configure`, then serve until nobody can connect and every
    command that began has ended."""
    scans = {root: FolderScan(descriptor, sandbox.writable_names) for root, descriptor in roots.items()}
    first = _receive_message(calls)
    if first is not None:
        verifier = Verifier(sandbox, roots, scans, mounted=first.get("mounted") is True)
        _Service(calls, verifier).run()


def configure(calls: socket.socket, *, mounted: bool) -> None:
    """Tell the process whether protected places are mounted read-only for commands.

    Raises:
        Unverified: it is gone.
    """
    try:
        _send_message(calls, {"mounted": mounted})
    except OSError:
        raise Unverified from None
