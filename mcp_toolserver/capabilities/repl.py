"""Running code in interpreter sessions."""

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import JobState

Language = Literal["python", "javascript", "shell"]


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """Code to run in a new interpreter or in a session."""

    language: Language
    code: str
    timeout: float
    """Seconds until the code is interrupted."""
    session: str = ""
    """Handle of a session; `new` starts one; empty runs the code in an interpreter of its own."""
    last: bool = False
    """Whether to end the session afterwards."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of a snippet."""

    state: JobState
    """The output; the exit status is 0 if the code ended without an error."""
    session: str = ""
    """Handle of the session; empty if it has ended."""
    pictures: tuple[bytes, ...] = ()
    """Displayed pictures; their format is not verified."""
    dropped: int = 0
    """Number of omitted pictures: too many or too large."""
    timed_out: bool = False
    gone: str = ""
    """Why the session ended unexpectedly; the words continue "the session"."""
    interpreter: str = ""
    """Version and path of the interpreter where there is a choice of them, that is for Python."""


class Sessions(Protocol):
    """Interpreter sessions. Processes that a session starts end with it; an idle session ends."""

    async def run(self, snippet: Snippet, report: Report) -> Evaluation:
        """Run a snippet. At the timeout it is interrupted, and the session continues if it can.

        Raises:
            NotFound: there is no such session (any more).
            InvalidInput: the session speaks another language.
            Unavailable: what it takes is not installed, or too many sessions run already.
        """
        ...
