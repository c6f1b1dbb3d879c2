"""What every call has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.catalogue import Catalogue


class Report(Protocol):
    """Tells the client how a long call is going; does nothing when nobody listens."""

    async def __call__(self, message: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Spill:
    """A result too long to send, kept for the caller in the server's private folder."""

    handle: str
    path: str
    """Absolute; `read_file` reads it."""
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """On whose behalf a call runs, and what it may go on to."""

    session: str
    """Whose call it is; what is counted per session is counted by this."""
    refuses: Callable[[str], str | None]
    """Why the call may not touch this subject too, such as where a redirect leads; None when it may."""
    patient: bool = False
    """The caller waits for the end of all work, so none of it is handed over to the background."""
    catalogue: Catalogue = tuple
    """What else could be called."""
