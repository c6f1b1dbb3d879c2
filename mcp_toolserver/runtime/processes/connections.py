"""What the proxy of commands reports: each connection goes into the audit log, refused ones into answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_toolserver.runtime.sandbox.broker.messages import session_id

if TYPE_CHECKING:
    from pydantic import JsonValue

LONGEST_REPORT = 4096
"""Bytes."""

_REFUSALS, _SESSIONS = 4096, 1024
"""What is kept of all sessions."""

_RETRY_SECONDS = 1.0

_NAMED = 5
"""Refusals that one answer names."""


class Connections:
    """The connections of all sessions. `record` stores the audit entry of one, and returns whether it is
    written. Until it is, no further report is taken; the proxy then waits with each connection that ends."""

    def __init__(self, reports: socket.socket, record: Callable[[dict[str, JsonValue]], bool]) -> None:
        self._reports = reports
        reports.setblocking(False)
        self._record = record
        self._loop: asyncio.AbstractEventLoop | None = None
        self._names: dict[str, str] = {}
        self._refusals = deque[tuple[int, str, str]](maxlen=_REFUSALS)
        self._count = 0

    def watch(self, session: str) -> int:
        """Take reports as they come, those of `session` under its name; returns a number for `refusals`."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._reports, self.take)
        self._names[session_id(session).decode()] = session
        if len(self._names) > _SESSIONS:
            del self._names[next(iter(self._names))]
        return self._count

    def take(self, *, at_end: bool = False) -> None:
        """Take the reports that have come; `at_end` all of them."""
        with contextlib.suppress(OSError):
            while data := self._reports.recv(LONGEST_REPORT):
                if not self._take(json.loads(data)) and not at_end:
                    return self._pause(_RETRY_SECONDS)
            self._pause()
        return None

    def _pause(self, seconds: float | None = None) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._reports)
            if seconds is not None:
                self._loop.call_later(seconds, self._loop.add_reader, self._reports, self.take)

    def _take(self, report: dict[str, JsonValue]) -> bool:
        session, refused, add = (str(report[name]) for name in ("session", "refused", "add"))
        place = f"{report['host']}:{report['port']}"
        if refused:
            # Of what a command chose, it has only what has the form of a host.
            advice = f"; the operator can allow it with --allow-domain {add}" if add else ""
            self._count += 1
            self._refusals.append((self._count, session, f"A connection failed: {refused}{advice}."))
        return self._record(
            {
                "session": self._names.get(session, session),
                "tool": "connection",
                "name": place,
                "verdict": "refused-host" if refused else "allowed",
                "rule": f"{place} {refused}".rstrip(),
                "outcome": "closed",
                "ms": report["ms"],
                "bytes": report["received"],
                "sent": report["sent"],
            }
        )

    def refusals(self, session: str, since: int) -> tuple[str, ...]:
        """Sentences on the connections of `session` that were refused after `watch` returned `since`.

        A report comes before the program that connected gets its answer, so none is missing once it has
        ended.
        """
        self.take()
        named = session_id(session).decode()
        found = [note for number, of, note in self._refusals if number > since and of == named]
        notes = tuple(dict.fromkeys(found))
        more = (f"{len(notes) - _NAMED} more failed.",) if len(notes) > _NAMED else ()
        return (*notes[:_NAMED], *more)
