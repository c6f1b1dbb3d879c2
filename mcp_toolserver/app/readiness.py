"""Whether the server can do its work, for `/readyz`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcp_toolserver.app.compose import Application
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.stores.disk import MIB, free_bytes

if TYPE_CHECKING:
    from mcp_toolserver.protocol.http.tokens import GrantFile

_FRESH_SECONDS = 1.0
"""How long an answer of the broker counts, because anybody can ask."""


@dataclass
class Readiness:
    """What keeps the server from doing its work."""

    app: Application
    grants: "GrantFile | None"
    _checked: float = -_FRESH_SECONDS
    """When the broker was asked, by the clock of the event loop."""
    _answers: bool = False
    _asking: anyio.Lock = field(default_factory=anyio.Lock)

    async def unready(self) -> Sequence[str]:
        """The parts that are not ready: `broker`, `tools`, `state folder`, `tokens`."""
        parts = {
            "tools": bool(self.app.dispatcher.available),
            "broker": await self._has_broker(),
            "state folder": self._has_room(),
            "tokens": self.grants is None or not self.grants.check(),
        }
        return [part for part, is_ready in parts.items() if not is_ready]

    async def _has_broker(self) -> bool:
        broker = self.app.shared.broker
        if broker is None:
            # This platform has none, and offers no tool that needs it.
            return True
        async with self._asking:
            if anyio.current_time() - self._checked >= _FRESH_SECONDS:
                try:
                    await anyio.to_thread.run_sync(broker.check, abandon_on_cancel=True)
                    self._answers = True
                except (Unavailable, OSError):
                    self._answers = False
                self._checked = anyio.current_time()
            return self._answers

    def _has_room(self) -> bool:
        """Whether the state folder can be written and has the reserve that the audit log needs."""
        try:
            folder = os.open(self.app.shared.state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            free = free_bytes(folder)
            is_writable = os.access(self.app.shared.state, os.W_OK)
        except OSError:
            return False
        finally:
            os.close(folder)
        return is_writable and (free is None or free >= self.app.settings.disk_reserve * MIB)
