"""Looks up, opens and reads the files that clients name, and computes, in worker threads.

What waits for a file system that does not answer, such as a network mount whose server is gone, cannot be
interrupted: its thread stays until the file system answers. So the number of threads per client is limited,
and look-ups have a deadline, so that other clients are not blocked.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from mcp_toolserver.errors import TimedOut
from mcp_toolserver.pipeline.fair_semaphore import FairSemaphore

T = TypeVar("T")

THREADS = 128
"""Concurrent look-ups and reads; a hung one counts until its file system answers."""

THREADS_OF_ONE = 16
"""Concurrent look-ups of one client, and reads of one client on one file system."""

SECONDS = 5.0
"""The deadline of a look-up, including the time in the queue."""

COMPUTATIONS = 2
"""Concurrent computations, one per client: Python runs one thread at a time, so more would only delay every
other client's calls."""


class PathLookups:
    """Runs look-ups and computations for clients, by name."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._semaphore = FairSemaphore(THREADS, THREADS_OF_ONE)
        self._computations = FairSemaphore(COMPUTATIONS, 1)
        # A thread for each slot, so that nothing waits in the pool. A thread that hangs does not keep the
        # server from its end, because it ends at once (`main.leave`).
        self._threads = ThreadPoolExecutor(THREADS + COMPUTATIONS, thread_name_prefix="look-up")

    async def run(self, client: str, work: Callable[[], T]) -> T:
        """Run `work`, which looks up paths for `client` and changes nothing, and return its result.

        Raises:
            TimedOut: the file system did not answer in time.
        """
        with anyio.move_on_after(self._seconds):
            return await self._in_thread(self._semaphore, client, work)
        raise TimedOut(
            f"A path could not be looked up within {self._seconds:g} s: the file system that it lies on does "
            "not answer. Nothing was done. Use another path, or ask the user to check the mount."
        )

    async def read(self, client: str, device: int, work: Callable[[], T]) -> T:
        """Run `work`, which opens and reads files of a file system for `client`, and return its result.

        The deadline is that of the call. When the caller leaves, `work` goes on alone: it closes what it
        opens.
        """
        return await self._in_thread(self._semaphore, f"{client} on {device}", work)

    async def compute(self, client: str, work: Callable[[], T]) -> T:
        """Run `work`, which only computes, and return its result; see `Compute`."""
        return await self._in_thread(self._computations, client, work)

    async def _in_thread(self, semaphore: FairSemaphore, client: str, work: Callable[[], T]) -> T:
        """Run `work` in a slot, released when the thread ends, which may be after the caller has left."""
        await checkpoint_if_cancelled()
        await semaphore.acquire(client)
        loop, context = asyncio.get_running_loop(), copy_context()
        done = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            semaphore.release(client)
            if done.done():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def run() -> None:
            try:
                ended = partial(settle, context.run(work), None)
            except BaseException as error:  # noqa: BLE001  the caller gets it
                ended = partial(settle, None, error)
            # A closed event loop needs neither the slot nor the result.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended)

        try:
            self._threads.submit(run)
        except RuntimeError:
            semaphore.release(client)
            raise
        return await done
