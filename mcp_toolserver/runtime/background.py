"""Work that outlives the call that started it, until the server ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


async def ended(work: asyncio.Task[None]) -> None:
    """Wait until started work has ended, in any way. Cancelling the wait leaves it running."""
    await asyncio.wait((work,))


class Background:
    """Starts work in the event loop of the server; what fails is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Callable[[], Awaitable[None]], *, name: str) -> asyncio.Task[None]:
        """Start `work`; `name` is for the log. Once the server ends, it is cancelled before it begins."""
        task = asyncio.get_running_loop().create_task(_logged(work, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._closed:
            task.cancel()
        return task

    async def aclose(self) -> None:
        """Cancel all work, and wait until it has ended."""
        self._closed = True
        while running := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def _logged(work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except Exception:
        # One failure must not end the others.
        log.exception("%s failed", name)
