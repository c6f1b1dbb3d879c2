"""One lock per path, which exists only while a call holds it or waits for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio


@dataclass
class _Turn:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class PathLocks:
    """Serialises changes of one path, first come, first served."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncGenerator[None]:
        """Wait for the lock of `path`, and hold it."""
        turn = self._turns.setdefault(path, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[path]
