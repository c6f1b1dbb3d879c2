"""What changes while the server runs, and who was given it: what clients are told of.

Stores and commands tell of a change by a plain call, and know nothing of clients. A handle is listed only to
the caller whose call made it. Whether a caller may use a handle is not decided here: whoever keeps the thing
knows its owner.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

log = logging.getLogger(__name__)

Kind = Literal["output", "job", "todos", "preferences"]

MAX_CALLERS = 256
"""Beyond, the one that has been silent for longest is forgotten, not what it was given."""

MAX_REFS = 256
"""Of one caller; beyond, the oldest is no longer listed."""


ResourceRef = tuple[Kind, str]
"""Something that the server keeps, with its handle. There is one set of preferences, so they have none."""

Listener = Callable[[ResourceRef, frozenset[str], bool], None]
"""Takes a thing that changed, the callers that it is listed to, and whether it has come or gone."""


class ChangeEvents:
    """Passes every change on to `hear`, and remembers whose things are."""

    def __init__(self) -> None:
        self.on_change: Listener | None = None
        self._caller: ContextVar[str | None] = ContextVar("caller", default=None)
        self._given: OrderedDict[str, OrderedDict[ResourceRef, None]] = OrderedDict()
        self._leaving: list[Callable[[str], None]] = []

    def when_forgotten(self, let_go: Callable[[str], None]) -> None:
        """Call `let_go` with every caller who will not come back."""
        self._leaving.append(let_go)

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
        ref = (kind, handle)
        listed = bool(handle) and self._list_for_caller(ref)
        self._announce(ref, self._owners(ref), listed)

    def removed(self, kind: Kind, handle: str) -> None:
        """A thing is no longer kept."""
        ref = (kind, handle)
        owners = self._owners(ref)
        for owner in owners:
            del self._given[owner][ref]
        self._announce(ref, owners, True)

    def of(self, caller: str, kind: Kind, start: str = "") -> tuple[str, ...]:
        """Handles that are listed to `caller` and begin with `start`, the newest first."""
        refs = reversed(self._given.get(caller, {}))
        return tuple(handle for other, handle in refs if other == kind and handle.startswith(start))

    def forget(self, caller: str) -> None:
        """`caller` will not come back."""
        self._given.pop(caller, None)
        for let_go in self._leaving:
            let_go(caller)

    def _announce(self, ref: ResourceRef, owners: frozenset[str], listed: bool) -> None:
        if self.on_change is None:
            return
        try:
            self.on_change(ref, owners, listed)
        except Exception:
            # The change is made; who could not be notified of it must not make it look undone.
            log.exception("clients could not be notified of a change of %s", ref[0])

    def _owners(self, ref: ResourceRef) -> frozenset[str]:
        return frozenset(owner for owner, refs in self._given.items() if ref in refs)

    def _list_for_caller(self, ref: ResourceRef) -> bool:
        """Whether the caller did not have it before."""
        caller = self._caller.get()
        if caller is None:
            return False
        given = self._given.setdefault(caller, OrderedDict())
        self._given.move_to_end(caller)
        if ref in given:
            return False
        given[ref] = None
        if len(given) > MAX_REFS:
            given.popitem(last=False)
        if len(self._given) > MAX_CALLERS:
            self._given.popitem(last=False)
        return True
