"""Which worktree each session works in, in the memory of the server."""

from mcp_toolserver.runtime.files.workspace import Entered


class EnteredWorktrees:
    """The worktrees in use. It is imported at start, because every call asks for that of its owner."""

    def __init__(self) -> None:
        self._by_owner: dict[str, Entered] = {}

    def of(self, owner: str) -> Entered | None:
        """The worktree that `owner` works in; None for none."""
        return self._by_owner.get(owner)

    def enter(self, owner: str, worktree: Entered) -> None:
        """Make `worktree` the first root of all calls of `owner`."""
        self._by_owner[owner] = worktree

    def forget(self, owner: str) -> None:
        """Take it away; nothing if there is none."""
        self._by_owner.pop(owner, None)

    def others(self, owner: str, id_: str) -> bool:
        """Whether somebody other than `owner` works in the worktree `id_`."""
        return any(user != owner and one.id == id_ for user, one in self._by_owner.items())
