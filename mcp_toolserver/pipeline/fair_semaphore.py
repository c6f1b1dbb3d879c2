"""Places for work, given out in turn by client, so that a flood of one client does not starve another."""

import math
from collections import Counter, OrderedDict, deque
from types import TracebackType

import anyio


class Overdue(Exception):
    """The turn did not come in time."""


class FairSemaphore:
    """A number of places. Whoever waits for one waits behind their own calls only.

    A client has at most `each` of the places, so that while it has long work in all of those, another finds
    one at once.
    """

    def __init__(self, places: int, each: int) -> None:
        self._free = places
        self._each = each
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        """By client, the one whose turn it is first; none without a call that waits."""

    @property
    def clients(self) -> int:
        """How many clients hold a place or wait for one."""
        return len(self._held.keys() | self._waiting.keys())

    def place(self, client: str, patience: float = math.inf) -> "Place":
        """Held inside the context, which is entered once it is the turn of `client`; see `take`."""
        return Place(self, client, patience)

    async def take(self, client: str, patience: float = math.inf) -> None:
        """Wait for the turn of `client`, and take a place, which has to be given back.

        Raises:
            Overdue: the turn did not come within `patience` seconds; no place was taken.
        """
        if self._free and self._may_hold(client):
            self._take(client)
            return
        with anyio.move_on_after(patience):
            await self._wait(client)
            return
        raise Overdue

    def give_back(self, client: str) -> None:
        """Let the next one have the place."""
        self._free += 1
        if self._held[client] == 1:
            del self._held[client]
        else:
            self._held[client] -= 1
        if self._waiting and (following := next(filter(self._may_hold, self._waiting), None)) is not None:
            self._call(following)

    def _may_hold(self, client: str) -> bool:
        return self._held[client] < self._each

    def _take(self, client: str) -> None:
        self._free -= 1
        self._held[client] += 1

    async def _wait(self, client: str) -> None:
        turn = anyio.Event()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.give_back(client)
            else:
                self._forget(client, turn)
            raise

    def _forget(self, client: str, turn: anyio.Event) -> None:
        queue = self._waiting[client]
        queue.remove(turn)
        if not queue:
            del self._waiting[client]

    def _call(self, client: str) -> None:
        """It is the turn of `client`, and then of all others before it is again."""
        queue = self._waiting.pop(client)
        self._take(client)
        queue.popleft().set()
        if queue:
            self._waiting[client] = queue


class Place:
    """A place of `turns`, as a context. Every read takes one, and a class costs less than a generator."""

    __slots__ = ("_client", "_patience", "_turns")

    def __init__(self, turns: FairSemaphore, client: str, patience: float) -> None:
        self._turns = turns
        self._client = client
        self._patience = patience

    async def __aenter__(self) -> None:
        await self._turns.take(self._client, self._patience)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._turns.give_back(self._client)
