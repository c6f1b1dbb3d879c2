"""A semaphore that is fair between clients: waiting clients get its slots in turn."""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class Overdue(Exception):
    """No slot became free in time."""


class FairSemaphore:
    """A semaphore of `slots` slots. A call that waits for one waits behind calls of its own client only.

    A client holds at most `per_client` of the slots, so that another finds one free while the first has long
    calls in all of its own.
    """

    def __init__(self, slots: int, per_client: int) -> None:
        self._free = slots
        self._per_client = per_client
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        """The waiting calls by client, the client whose turn it is first; no client has an empty queue."""

    @property
    def clients(self) -> int:
        """The number of clients that hold a slot or wait for one."""
        return len(self._held.keys() | self._waiting.keys())

    @asynccontextmanager
    async def slot(self, client: str, timeout: float = math.inf) -> AsyncGenerator[None]:
        """Hold a slot for `client` inside the context; see `acquire`."""
        await self.acquire(client, timeout)
        try:
            yield
        finally:
            self.release(client)

    async def acquire(self, client: str, timeout: float = math.inf) -> None:
        """Wait for the turn of `client` and acquire a slot; the caller has to release it.

        Raises:
            Overdue: no slot became free within `timeout` seconds; none was acquired.
        """
        if self._free and self._held[client] < self._per_client:
            self._free -= 1
            self._held[client] += 1
            return
        with anyio.move_on_after(timeout):
            await self._wait(client)
            return
        raise Overdue

    def release(self, client: str) -> None:
        """Release a slot of `client`, and give it to the next client that waits."""
        self._free += 1
        if self._held[client] == 1:
            del self._held[client]
        else:
            self._held[client] -= 1
        for following in self._waiting:
            if self._held[following] < self._per_client:
                self._wake(following)
                break

    async def _wait(self, client: str) -> None:
        turn = anyio.Event()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.release(client)
            else:
                self._forget(client, turn)
            raise

    def _forget(self, client: str, turn: anyio.Event) -> None:
        queue = self._waiting[client]
        queue.remove(turn)
        if not queue:
            del self._waiting[client]

    def _wake(self, client: str) -> None:
        """Wake the first waiting call of `client`, and move the client behind all others."""
        queue = self._waiting.pop(client)
        self._free -= 1
        self._held[client] += 1
        queue.popleft().set()
        if queue:
            self._waiting[client] = queue
