"""Announces changes of stored things, and lists the handles that each caller's calls made.

Stores and commands report a change by a plain call and know nothing of clients. A handle is listed only to
the caller whose call made it. The store of the thing, not this module, decides whether a caller may use a
handle.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

log = logging.getLogger(__name__)

Kind = Literal["output", "job", "agent", "task", "schedules", "todos", "preferences", "tools"]

MAX_CALLERS = 256
"""With more, the list of the caller that was inactive for longest is dropped; its things stay."""

MAX_REFS = 256
"""Listed handles of one caller; with more, the oldest is no longer listed."""


ResourceRef = tuple[Kind, str]
"""The kind and handle of a stored thing. The handle of the preferences is empty, because there is one set."""

Listener = Callable[[ResourceRef, frozenset[str], bool], None]
"""Takes what changed, the callers that see it in their lists, and whether it was added or removed."""


class ChangeEvents:
    """Passes every change to `on_change`, and remembers which caller's calls made each handle."""

    def __init__(self) -> None:
        self.on_change: Listener | None = None
        self.on_end: Callable[[str, str], None] = lambda _, __: None
        """Takes the owner of work in the background that has ended, and a sentence about its end."""
        self._caller: ContextVar[str | None] = ContextVar("caller", default=None)
        self._given: OrderedDict[str, OrderedDict[ResourceRef, None]] = OrderedDict()
        self._leaving: list[Callable[[str], object]] = []

    def when_forgotten(self, forget: Callable[[str], object]) -> None:
        """Call `forget` with every caller who will not return."""
        self._leaving.append(forget)

    @contextmanager
    def on_behalf_of(self, caller: str) -> Generator[None]:
        """List the handles made inside the context, and by tasks it starts, to `caller`."""
        token = self._caller.set(caller)
        try:
            yield
        finally:
            self._caller.reset(token)

    def changed(self, kind: Kind, handle: str = "") -> None:
        """Announce that a thing was made or changed. A handle is listed to the caller of the current call."""
        ref = (kind, handle)
        listed = bool(handle) and self._list_for_caller(ref)
        self._announce(ref, self._owners(ref), listed)

    def removed(self, kind: Kind, handle: str) -> None:
        """Announce that a thing was removed."""
        ref = (kind, handle)
        owners = self._owners(ref)
        for owner in owners:
            del self._given[owner][ref]
        self._announce(ref, owners, True)

    def of(self, caller: str, kind: Kind, start: str = "") -> tuple[str, ...]:
        """Return the handles listed to `caller` that begin with `start`, newest first."""
        refs = reversed(self._given.get(caller, {}))
        return tuple(handle for other, handle in refs if other == kind and handle.startswith(start))

    def forget(self, caller: str) -> None:
        """Drop the list of `caller`, who will not return, and tell the stores."""
        self._given.pop(caller, None)
        for forget in self._leaving:
            forget(caller)

    def _announce(self, ref: ResourceRef, owners: frozenset[str], listed: bool) -> None:
        if self.on_change is None:
            return
        try:
            self.on_change(ref, owners, listed)
        except Exception:
            # The change is made; a failed notification must not make it look undone.
            log.exception("clients could not be notified of a change of %s", ref[0])

    def _owners(self, ref: ResourceRef) -> frozenset[str]:
        return frozenset(owner for owner, refs in self._given.items() if ref in refs)

    def _list_for_caller(self, ref: ResourceRef) -> bool:
        """List `ref` to the current caller; return whether it is new there."""
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
