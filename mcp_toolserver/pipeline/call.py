"""A call as its client sees it: the caller, the options and the result."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import SavedOutput
from mcp_toolserver.capabilities.user import Answers, Question
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.tool_spec import Image, Output, Runtime


@dataclass(frozen=True, kw_only=True)
class ClientFolders:
    """The workspace folders that a client announces."""

    paths: tuple[str, ...] = ()
    """Absolute."""
    why: str = ""
    """Where the client causes that there are none: why, and what to do, as sentences for the caller."""


class InputRequired(Exception):
    """The question goes to the client, which will send the call again with the answer."""


class Caller(Protocol):
    """Who calls: how to reach them, and what they confine themselves to."""

    @property
    def name(self) -> str:
        """What they call themselves, for the record; it proves nothing."""
        ...

    @property
    def owner(self) -> str:
        """Whose handles are theirs: a handle of another owner is answered like one that was never given."""
        ...

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        """Ask the user what a tool asks; see `Ask`.

        Raises:
            InputRequired: the answer comes with a later call.
        """
        ...

    async def tell(self, message: str) -> None:
        """See `Tell`."""
        ...

    async def ask(self, question: str) -> bool:
        """Yes or no from a human; no when there is none.

        Raises:
            InputRequired: the answer comes with a later call.
        """
        ...

    async def report(self, message: str) -> None:
        """Progress of a long call."""
        ...

    async def roots(self) -> ClientFolders | None:
        """Folders the client works in, which narrow the roots of the server; None where it does not say."""
        ...

    def narrowing(self) -> ClientRestrictions | None:
        """What the client confines this call to; None for no opinion."""
        ...


@dataclass(frozen=True, kw_only=True)
class Result:
    """The envelope of every call."""

    text: str
    error: str | None = None
    """The kind of failure, None on success."""
    data: dict[str, JsonValue] | None = None
    images: tuple[Image, ...] = ()
    pending: bool = False
    """Not an answer yet: the client has to answer a question first."""
    truncated: bool = False
    saved_output: SavedOutput | None = None
    duration_ms: float = 0.0
    call_id: str = ""

    def metadata(self) -> dict[str, JsonValue]:
        """Duration and id always; truncation and where the whole lies only when it applies."""
        found: dict[str, JsonValue] = {"duration_ms": round(self.duration_ms, 3), "call_id": self.call_id}
        if self.truncated:
            found["truncated"] = True
        if self.saved_output is not None:
            found["output_path"] = self.saved_output.path
        return found

    def envelope(self) -> dict[str, JsonValue]:
        """`{type: output|error, data | error_text, metadata}`."""
        if self.error is not None:
            return {"type": "error", "kind": self.error, "error_text": self.text, "metadata": self.metadata()}
        data = self.text if self.data is None else self.data
        return {"type": "output", "data": data, "metadata": self.metadata()}


@dataclass(frozen=True, kw_only=True)
class OutputOverride:
    """What runs in a tool's place where what it gives is wanted in another form, such as a resource.

    The call is one of the tool in all else: its arguments, rules, permission, capabilities and record.
    """

    run: Callable[[Any, Runtime], Awaitable[Output]]
    output_bytes: int


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """How a call is made."""

    output_override: OutputOverride | None = None
    wait_until_done: bool = False
    """The caller waits for the end of all work."""
    call_id: str = ""
    """One is made where none is given."""


DEFAULT_OPTIONS = CallOptions()
