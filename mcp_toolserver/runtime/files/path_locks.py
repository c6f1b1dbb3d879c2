"""One lock per path, for as long as somebody holds it or waits for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio


@dataclass
class _Turn:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class PathLocks:
    """Makes changes of one path serial; first come, first served."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncGenerator[None]:
        """Wait for the turn of this caller on `path`."""
        turn = self._turns.setdefault(path, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[path]
