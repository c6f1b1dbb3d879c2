"""What every call has."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.permissions import Permission

LOCAL = "local"
"""The owner of what the user of this machine makes: the one client on stdio, and the command line. It is the
same in every server, so what outlives a server is found again by the next."""


UNCONNECTED = "client"
"""How the owner of a client without a connection begins; its session ends when it is idle."""

REMOVED = (
    "Saved outputs are removed when they grow too old, the oldest first when they need too much room, and "
    "all of them when their client or the server ends. Run the call again to have it anew."
)
"""Why a saved output may not be there; the same for one that was never there, or is somebody else's."""


HookEvent = Literal["PreToolUse", "PostToolUse", "PostToolUseFailure"]
"""When hooks run: before a call, after one that succeeded, after one that failed."""

Report = Callable[[str], Awaitable[None]]
"""Tells the client how a long call is going; does nothing when nobody listens."""


class Refusal(Protocol):
    """Says why a call may not touch a subject; None when it may."""

    def __call__(self, *spellings: str) -> str | None:
        """`spellings` are all the names of one subject, such as those of a path."""
        ...


SECONDS_TO_ANSWER = 45.0
"""How long a call waits where nobody says how long the client does: many give up after a minute."""


def longest_wait(seconds_to_answer: float | None, limit: float | None) -> float:
    """Seconds that a call may wait for a job: `limit`, else as long as the client waits for the answer."""
    if seconds_to_answer == math.inf:
        return math.inf
    if limit is not None:
        return limit
    return SECONDS_TO_ANSWER if seconds_to_answer is None else seconds_to_answer


@dataclass(frozen=True, kw_only=True)
class SavedOutput:
    """A result too long to send, kept for the caller in the server's private folder."""

    handle: str
    path: str
    """Absolute; `read_file` reads it."""
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class ToolCard:
    """The description of a tool that can be called here."""

    name: str
    description: str
    aliases: tuple[str, ...]
    toolset: str
    permission: Permission
    """The permission that a call requires on this host."""
    schema: str
    """The JSON Schema of its arguments."""
    arguments: tuple[str, ...]
    """Names of the arguments."""
    core: bool
    """Whether every selection lists the tool."""


Catalogue = Callable[[], Sequence[ToolCard]]
"""Returns every tool that can be called here, listed or not, sorted by name."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """How long the text of an answer may be for the client to give all of it to its model."""

    bytes: int = 48_000
    """Claude Code shows the first 2 KB of a result of more than 50,000 characters."""
    lines: float = math.inf

    @property
    def of_file(self) -> "Room":
        """What the text of a file may take of it, so that the notes on the file fit too."""
        return Room(bytes=min(39_500, self.bytes - 500), lines=self.lines - 5)


ROOM = Room()
"""For clients of which nothing else is known."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """On whose behalf a call runs, and what it may go on to."""

    session: str
    """Whose call it is; what is counted per session is counted by this."""
    owner: str = LOCAL
    """Who may use the handles that the call makes, and whose handles it may use; see `Caller.owner`."""
    refuses: Refusal
    """Why the call may not touch another subject too, such as where a redirect leads."""
    forbids: Refusal
    """Why a rule keeps the call from a file that it comes upon, such as one of a folder; None where the rules
    decide on the file as on the call."""
    seconds_to_answer: float | None = None
    """How long the client waits for the answer; infinite if it waits for the end of all work, so that nothing
    moves to the background; None if that is unknown."""
    room: Room = ROOM
    catalogue: Catalogue = tuple
    """What else could be called."""
