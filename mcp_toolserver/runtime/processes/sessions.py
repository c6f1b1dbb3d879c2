"""What the commands of a session share, as the server sees it: it uses their temporary folder and ends it."""

import time
from collections.abc import Callable, Sequence
from threading import Lock

from mcp_toolserver.capabilities.call_scope import UNCONNECTED
from mcp_toolserver.runtime.files.root import TemporaryFolder
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.layers.spec import may_share

IDLE_SECONDS = 1800.0
"""After so long without a call, the session of a client without a connection ends."""


class Sessions:
    """The sessions of all owners. Methods may be called in several threads.

    `roots` are those of the server; with one in or above the temporary folder, each command has its own.
    `now` returns seconds of a monotonic clock.
    """

    def __init__(
        self, broker: Broker, roots: Sequence[str], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._broker = broker
        self._shares_temporary = may_share(roots)
        self._now = now
        self._lock = Lock()
        self._folders: dict[str, TemporaryFolder] = {}
        self._used: dict[str, float] = {}
        self._joined: dict[str, str] = {}

    def join(self, owner: str, other: str) -> None:
        """Let `owner` share the session of `other` until `owner` is forgotten."""
        self._joined[owner] = self.of(other)

    def of(self, owner: str) -> str:
        """The name of the session of `owner`."""
        return self._joined.get(owner, owner)

    def temporary(self, owner: str) -> TemporaryFolder | None:
        """Return the temporary folder of the session of `owner`, who makes a call now; None if there is
        none."""
        owner = self.of(owner)
        with self._lock:
            self._used[owner] = self._now()
            if not self._shares_temporary:
                return None
            if owner not in self._folders:
                self._folders[owner] = TemporaryFolder(
                    self._broker.temporary_path(owner), lambda: self._broker.temporary_folder(owner)
                )
            return self._folders[owner]

    def forget(self, owner: str) -> None:
        """End the session of `owner`, who will not return, unless it is that of somebody else."""
        if self._joined.pop(owner, None) is None:
            self._drop(owner)
            self._broker.end_session(owner)

    def expire(self) -> None:
        """End the sessions without a connection that are idle, once none of their commands runs."""
        before = self._now() - IDLE_SECONDS
        with self._lock:
            idle = [owner for owner, used in self._used.items() if used < before]
        for owner in idle:
            if owner.startswith(UNCONNECTED):
                self._drop(owner)
                self._broker.end_session(owner, when_unused=True)

    def _drop(self, owner: str) -> None:
        with self._lock:
            self._folders.pop(owner, None)
            self._used.pop(owner, None)
