"""A call as its client sees it: the caller and its user, the options, the rights and the result."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import ROOM, Room, SavedOutput
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.user import Answers, ForeignQuestion, FormContent, Question
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.text.json_values import with_texts
from mcp_toolserver.text.lines.encoding import head_bytes, tail_bytes
from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.tool_spec import Image, Output, ResourceLink, Runtime

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.model import Model


class InputRequired(Exception):
    """The client has to answer a question and send the call again."""


class Caller(Protocol):
    """The client that makes a call: how to reach its user, and its own restrictions."""

    @property
    def name(self) -> str:
        """The name that the client gives itself, for the record; it proves nothing."""
        ...

    @property
    def owner(self) -> str:
        """The owner of its handles. The handle of another owner gives the same error as an unknown one."""
        ...

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        """Ask the user what a tool asks; see `Ask`.

        Raises:
            InputRequired: the answer comes with a later call.
        """
        ...

    async def forward(self, question: ForeignQuestion) -> FormContent | None:
        """Ask the user what another server asks; None if they do not accept.

        Raises:
            NobodyToAsk, TimedOut, InputRequired: as for `elicit`; a client may know forms or addresses only.
        """
        ...

    async def tell(self, message: str) -> bool:
        """See `Tell`."""
        ...

    async def ask(self, question: str) -> bool | None:
        """Ask the user yes or no; None if nobody can be asked, or answered in time.

        Raises:
            InputRequired: the answer comes with a later call.
        """
        ...

    async def report(self, message: str) -> None:
        """Report progress of a long call."""
        ...

    async def roots(self) -> Sequence[Sequence[str]]:
        """Lists of folders, as absolute paths. Each narrows the server's roots to what lies in its folders,
        such as those that the client works in."""
        ...

    def restrictions(self) -> ClientRestrictions | None:
        """The client's own restrictions of this call; None if it has none."""
        ...

    def sampling(self) -> "Model | None":
        """The client's own model, which answers until the call ends; None if the client offers none."""
        ...


@dataclass(frozen=True, kw_only=True)
class Result:
    """The envelope of every call."""

    text: str
    error: str | None = None
    """The kind of failure, None on success."""
    data: dict[str, JsonValue] | None = None
    images: tuple[Image, ...] = ()
    resources: tuple[ResourceLink, ...] = ()
    pending: bool = False
    """Whether the client has to answer a question first."""
    truncated: bool = False
    saved_output: SavedOutput | None = None
    sha256: Mapping[CanonicalPath, str] = field(default_factory=dict[CanonicalPath, str])
    """Of each file that was written, in hexadecimal, by its path."""
    duration_ms: float = 0.0
    call_id: str = ""
    exit_status: int = 0
    """See `Output`."""

    def metadata(self) -> dict[str, JsonValue]:
        """Duration and id; truncation, the path of the saved output and hashes only if they apply."""
        found: dict[str, JsonValue] = {"duration_ms": round(self.duration_ms, 3), "call_id": self.call_id}
        if self.truncated:
            found["truncated"] = True
        if self.saved_output is not None:
            found["output_path"] = self.saved_output.path
        if self.sha256:
            found["sha256"] = {visible(path): digest for path, digest in self.sha256.items()}
        return found

    def envelope(self) -> dict[str, JsonValue]:
        """`{type: output|error, data | error_text, metadata}`."""
        if self.error is not None:
            return {"type": "error", "kind": self.error, "error_text": self.text, "metadata": self.metadata()}
        data = self.text if self.data is None else self.data
        return {"type": "output", "data": data, "metadata": self.metadata()}


@dataclass(frozen=True, kw_only=True)
class OutputOverride:
    """Replaces the function of a tool to return its output in another form, such as a resource.

    The arguments, rules, permission, capabilities and record of the call stay those of the tool.
    """

    run: Callable[[Any, Runtime], Awaitable[Output]]
    output_bytes: int


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """Options of one call."""

    output_override: OutputOverride | None = None
    seconds_to_answer: float | None = None
    """See `Scope.seconds_to_answer`."""
    room: Room = ROOM
    call_id: str = ""
    """The dispatcher makes one if this is empty."""
    parent_id: str = ""
    """The id of the call for which this one is made; empty if a client makes it."""
    depth: int = 0
    """How many agents started each other down to this call; 0 if a client makes it."""
    narrowings: tuple[Narrowing, ...] = ()
    """What takes rights from the call."""


DEFAULT_OPTIONS = CallOptions()


@dataclass(frozen=True)
class User:
    """The user behind the client of one call: answers questions of tools and receives their messages.

    Texts for the user are escaped like every text that leaves the server.
    """

    caller: Caller
    shown: Callable[[str], str]
    """Escapes a text for clients."""

    async def report(self, message: str) -> None:
        """Report progress of a long call."""
        await self.caller.report(self.shown(message))

    async def ask(self, questions: Sequence[Question]) -> Answers:
        """See `Ask`. A choice comes back in the escaped spelling that the user saw."""
        return await self.caller.elicit([self._shown(question) for question in questions])

    async def forward(self, question: ForeignQuestion) -> FormContent | None:
        """See `Caller.forward`."""
        schema = {name: with_texts(one, self.shown) for name, one in question.schema.items()}
        shown = replace(question, text=self.shown(question.text), schema=schema)
        return await self.caller.forward(shown)

    async def tell(self, message: str) -> bool:
        """See `Tell`."""
        return await self.caller.tell(self.shown(message))

    def _shown(self, question: Question) -> Question:
        choices = (
            replace(choice, label=self.shown(choice.label), description=self.shown(choice.description))
            for choice in question.choices
        )
        text, header = self.shown(question.text), self.shown(question.header)
        return replace(question, text=text, header=header, choices=tuple(choices))


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What a call may do at most, besides the rules and the ceiling of the server.

    They pass to what runs later on its behalf.
    """

    narrowings: tuple[Narrowing, ...] = ()
    folders: tuple[str, ...] | None = None
    """The folders that the call may use, absolute; None for all roots of the server."""
    confined_to: ClientRestrictions | None = None
    """The restrictions of the client."""
    depth: int = 0
    """How many agents started each other down to the call."""

    @property
    def ceiling(self) -> Permission:
        """The lowest ceiling of the narrowings."""
        return min((one.ceiling for one in self.narrowings), default=Permission.DANGER_FULL_ACCESS)

    def narrowed(self, *narrowings: Narrowing) -> "Rights":
        """The same with fewer rights."""
        return replace(self, narrowings=(*self.narrowings, *narrowings))


_END_BYTES = 2_000
"""Kept of the end of a text that is cut: notes stand there."""


async def fit(output: Output, room: Room, save: Callable[[str], Awaitable[SavedOutput]]) -> Output:
    """Cut `output.text` in the middle, so that it fits into `room`, and save the whole.

    A line says how much is left out, and the path of the whole text or why it could not be saved. An
    `OSError` of `save` does not fail the call.
    """
    limit, lines = room.bytes, output.text.count("\n")
    is_short = len(head_bytes(output.text, limit)) == len(output.text) and lines < room.lines
    if is_short and not output.whole:
        return output
    saved_output, how = output.saved_output, "are left out"
    try:
        saved_output = saved_output or await save(output.whole or output.text)
    except OSError as error:
        how = f"could not be saved, because {error.strerror or error}"
    else:
        how += f'; read all of it with read_file, path "{saved_output.path}"'
    if is_short:
        text = f"{output.text}\n[Parts {how}]"
        return replace(output, text=text, truncated=True, saved_output=saved_output)
    end = tail_bytes(output.text, min(_END_BYTES, limit // 4))
    left_over = limit - len(f"\n[{len(output.text) * 4} bytes {how}]\n{end}".encode())
    start = head_bytes(output.text, max(0, left_over))
    if lines >= room.lines:
        some = int(room.lines) // 4
        start, end = "\n".join(start.split("\n")[: 3 * some - 1]), "\n".join(end.split("\n")[-some:])
    left = len(output.text.encode()) - len(start.encode()) - len(end.encode())
    text = f"{start}\n[{left} bytes {how}]\n{end}"
    return replace(output, text=text, truncated=True, saved_output=saved_output)
