"""The narrowings in force for the calls of each owner: those of plan mode, of skills, and of agents."""

from mcp_toolserver.policy.narrowing import Narrowing


class Narrowings:
    """Narrowings by the owner of a call (`Caller.owner`), in memory."""

    def __init__(self) -> None:
        self._own: dict[str, dict[str, Narrowing]] = {}
        self._parents: dict[str, str] = {}
        self._left: set[str] = set()
        """Owners who will not return, but started what still runs."""

    def of(self, owner: str) -> tuple[Narrowing, ...]:
        """What is in force for calls of `owner`, with that of whoever started it, in the order of `put`."""
        found: list[Narrowing] = []
        at: str | None = owner
        while at is not None:
            found = [*self._own.get(at, {}).values(), *found]
            at = self._parents.get(at)
        return tuple(found)

    def put(self, owner: str, key: str, narrowing: Narrowing) -> None:
        """Take rights from the calls of `owner` from now on; replaces the narrowing with this key."""
        self._own.setdefault(owner, {})[key] = narrowing

    def get(self, owner: str, key: str) -> Narrowing | None:
        """The narrowing with this key that was put for `owner` itself."""
        return self._own.get(owner, {}).get(key)

    def remove(self, owner: str, key: str) -> None:
        """Lift the narrowing with this key, if there is one."""
        own = self._own.get(owner, {})
        own.pop(key, None)
        if not own:
            self._own.pop(owner, None)

    def adopt(self, child: str, parent: str) -> None:
        """Let calls of `child` also keep what is in force for `parent`, now and later."""
        if child not in self._ancestors(parent):
            self._parents[child] = parent

    def forget(self, owner: str) -> None:
        """Lift what was put for `owner`, who will not return, once all that it started is forgotten too:
        its end must not give rights back to work that still runs."""
        self._left.add(owner)
        while owner in self._left and owner not in self._parents.values():
            self._left.discard(owner)
            self._own.pop(owner, None)
            owner = self._parents.pop(owner, "")

    def _ancestors(self, owner: str) -> set[str]:
        found = {owner}
        while (owner := self._parents.get(owner, "")) and owner not in found:
            found.add(owner)
        return found
