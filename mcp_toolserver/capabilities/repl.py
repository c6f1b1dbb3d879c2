"""Code in an interpreter that may stay."""

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import JobState

Language = Literal["python", "javascript", "shell"]


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """Code to run in an interpreter of its own, or in a session that goes on."""

    language: Language
    code: str
    timeout: float
    """Seconds until it is interrupted."""
    session: str = ""
    """The handle of a session; `new` starts one; empty is an interpreter for this code alone."""
    last: bool = False
    """End the session afterwards."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What came of a snippet."""

    state: JobState
    """What it printed; the status is 0 when it ran to its end without an error."""
    session: str = ""
    """The handle to go on with; empty when there is nothing to go on with."""
    pictures: tuple[bytes, ...] = ()
    """What it displayed. Nobody has looked whether they are what they should be."""
    dropped: int = 0
    """Pictures more, which were too many or too large."""
    timed_out: bool = False
    gone: str = ""
    """Why the session ended although more might have come, in words that go on from "the session"."""


class Sessions(Protocol):
    """Interpreters. Nothing that a session starts outlives it; unused for long, it ends."""

    @property
    def has_kernel(self) -> bool:
        """Whether Python runs in a Jupyter kernel, which shows values and pictures."""
        ...

    async def run(self, snippet: Snippet, report: Report) -> Evaluation:
        """Run it to its end. When its time is up it is interrupted, and the session goes on if it can.

        Raises:
            NotFound: there is no such session (any more).
            InvalidInput: the session speaks another language.
            Unavailable: what it takes is not installed, or too many sessions run already.
        """
        ...
