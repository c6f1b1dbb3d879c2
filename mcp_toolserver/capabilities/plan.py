"""Plan mode: a session reads and plans, until a human approves the plan."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class PlanMode:
    """The plan mode of a session."""

    handle: str
    path: str
    """The plan file, absolute: the one file that the session can write."""
    is_new: bool = False
    """Whether it has just begun."""
    may_write: bool = False
    """Whether the permission mode of the server lets file tools write the plan file."""
    suspended: tuple[str, ...] = ()
    """The programs that it suspended, by name, ..."""
    stopped: tuple[str, ...] = ()
    """... and those that it stopped, because they could not be suspended."""


class Plans(Protocol):
    """The plan mode of the session that makes the call."""

    async def enter(self) -> PlanMode:
        """Begin plan mode, or return the one that has begun: from now on every call of the session, and of
        what it started, can only read, and write the plan file. Its running programs that may write are
        suspended; its tasks, and the schedules of its user, wait.

        Raises:
            Unavailable: the plan file cannot be made.
        """
        ...

    async def current(self, handle: str) -> PlanMode:
        """Return the plan mode of the session. `handle` is empty or its handle.

        Raises:
            NotFound: the session is not in plan mode, or that is not its handle.
        """
        ...

    async def read(self) -> str:
        """Return the text of the plan file.

        Raises:
            InvalidInput: it is longer than a user can be asked to read, or not text.
            NotFound: the session is not in plan mode, or the file was removed.
        """
        ...

    async def leave(self, handle: str) -> tuple[str, ...]:
        """End plan mode, because a human approved it; returns the names of the programs that go on. Nothing
        if it has ended."""
        ...
