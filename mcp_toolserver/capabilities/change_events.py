"""What changes while the server runs, and who was given it: what clients are told of.

Stores and commands tell of a change by a plain call, and know nothing of clients. A handle is listed only to
the caller whose call made it; everybody else has to be given it.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Kind = Literal["output", "job", "todos", "preferences"]

CALLERS = 256
"""Beyond, the one that has been silent for longest is forgotten, not what it was given."""

THINGS = 256
"""Of one caller; beyond, the oldest is no longer listed."""


Thing = tuple[Kind, str]
"""Something that the server keeps, with its handle. There is one set of preferences, so they have none."""

Hear = Callable[[Thing, frozenset[str], bool], None]
"""Takes a thing that changed, the callers that it is listed to, and whether it has come or gone."""


def _nobody(_: Thing, __: frozenset[str], ___: bool) -> None:
    return


class Changes:
    """Passes every change on to `hear`, and remembers whose things are."""

    def __init__(self) -> None:
        self.hear: Hear = _nobody
        self._caller: ContextVar[str | None] = ContextVar("caller", default=None)
        self._given: OrderedDict[str, OrderedDict[Thing, None]] = OrderedDict()

    @contextmanager
    def on_behalf_of(self, caller: str) -> Generator[None]:
        """What comes of this, and of what it starts, is for `caller`."""
        token = self._caller.set(caller)
        try:
            yield
        finally:
            self._caller.reset(token)

    def changed(self, kind: Kind, handle: str = "") -> None:
        """A thing was made or changed. One with a handle is listed to whoever's call it was."""
        thing = (kind, handle)
        listed = bool(handle) and self._give(thing)
        self.hear(thing, self._owners(thing), listed)

    def gone(self, kind: Kind, handle: str) -> None:
        """A thing is no longer kept."""
        thing = (kind, handle)
        owners = self._owners(thing)
        for owner in owners:
            del self._given[owner][thing]
        self.hear(thing, owners, True)

    def of(self, caller: str, kind: Kind) -> tuple[str, ...]:
        """Handles that are listed to `caller`, the newest first."""
        things = reversed(self._given.get(caller, {}))
        return tuple(handle for other, handle in things if other == kind)

    def forget(self, caller: str) -> None:
        """`caller` will not come back."""
        self._given.pop(caller, None)

    def _owners(self, thing: Thing) -> frozenset[str]:
        return frozenset(owner for owner, things in self._given.items() if thing in things)

    def _give(self, thing: Thing) -> bool:
        """Whether the caller did not have it before."""
        caller = self._caller.get()
        if caller is None:
            return False
        given = self._given.setdefault(caller, OrderedDict())
        self._given.move_to_end(caller)
        if thing in given:
            return False
        given[thing] = None
        if len(given) > THINGS:
            given.popitem(last=False)
        if len(self._given) > CALLERS:
            self._given.popitem(last=False)
        return True
