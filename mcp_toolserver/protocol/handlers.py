"""The request handlers of tools."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least
from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import ROOM, Room
from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.capabilities.cron import owner_of, runs_of
from mcp_toolserver.errors import NobodyToAsk, Unavailable, UnknownTool
from mcp_toolserver.pipeline.call import CallOptions, Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.client_identity import ClientIds, ClientRoots
from mcp_toolserver.protocol.codex_sandbox_state import restrictions
from mcp_toolserver.protocol.elicitation import Asker, Questions, notify
from mcp_toolserver.protocol.translate import Context, correlation, is_stateless
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.text.lines.escape_invisible import visible

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.model import Model
    from mcp_toolserver.protocol.sampling import BackChannelModel, Rounds
    from mcp_toolserver.protocol.tasks.task import Task

_SESSION = "mcp-session-id"
_SSE_SESSION = "session_id"

_TOKEN_LIMIT = 256
"""Maximum characters of a progress token, because each notification echoes it."""


_MARGIN = 20.0
"""Seconds between our answer and the client's timeout."""


@dataclass(frozen=True, kw_only=True)
class KnownClient:
    """What is known of a client's own defaults."""

    timeout: float | None = None
    """Seconds that it waits for the answer to a call."""
    since: tuple[int, ...] = ()
    """The first version that is known to wait so long."""
    room: Room = ROOM
    """What it gives to its model whole; of more it shows a part, or the name of a file that it wrote."""


_CLIENTS: Mapping[str, KnownClient] = {
    # Older versions, and the desktop application, cancel after 60 s (anthropics/claude-code issue 63379).
    "claude-code": KnownClient(timeout=300.0, since=(2, 1, 154)),
    "gemini-cli-mcp-client": KnownClient(timeout=600.0, room=Room(bytes=39_500)),
    "goose": KnownClient(timeout=300.0),
    "qwen-cli": KnownClient(room=Room(bytes=24_500, lines=950)),
    "opencode": KnownClient(room=Room(lines=1_950)),
    "@cline": KnownClient(room=Room(bytes=6_000)),
}
"""By the start of the name that they give themselves:

- Claude Code 2.1.222 aborts after 300 s without an answer or progress (vfarcic/dot-ai pull request 708).
- Gemini CLI documents `timeout` of a server in settings.json with a default of 600,000 ms.
- goose has DEFAULT_EXTENSION_TIMEOUT = 300 s in block/goose, crates/goose/src/config/extensions.rs.
- What a model gets was seen with tests/client_programs: Gemini CLI of more than 40,000 characters the first
  8,000 and last 32,000, Qwen Code of more than 25,000 or 1,000 lines 2,000, opencode of more than 2,000 lines
  a part, Cline 8,000 of the answer as JSON.

A user may have set a shorter time in the client; the setting `foreground-seconds` of this server then has to
follow."""

_TOOLS_SINCE = "2025-11-25"
"""The revision that added tools to sampling."""

_TOO_MANY = Result(
    text="Too many calls use the client's model at the same time. Wait for one to end, and call again.",
    error=Unavailable.kind,
)
_EXPIRED = Result(
    text="This call has ended: it was cancelled, waited too long for the client's model, or was already "
    "continued. Make it again from the start.",
    error=Unavailable.kind,
)


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """Answers requests with the dispatcher."""

    dispatcher: Dispatcher
    ask_seconds: float
    questions: Questions = field(default_factory=Questions)
    roots: ClientRoots = field(default_factory=ClientRoots)
    changes: ChangeEvents = field(default_factory=ChangeEvents)
    background: Background = field(default_factory=Background)
    """Runs calls that outlive their request."""
    only_client: str = ""
    """The id of the only client of the transport; empty if there can be several."""
    structured: bool = False
    """Whether results have structured data, and tools its schema. Clients that get both, text and data, show
    their model only one: Claude Code 2.1.330 drops the text."""

    @cached_property
    def client_ids(self) -> ClientIds:
        return ClientIds(self.changes.forget, only=self.only_client, user=self.dispatcher.user)

    @property
    def offered(self) -> frozenset[str]:
        """The names of the tools that this server can run."""
        return frozenset(entry.spec.name for entry in self.dispatcher.available)

    @cached_property
    def rounds(self) -> "Rounds":
        """The calls that are answered in rounds, for the model of stateless clients."""
        # Few clients offer their model.
        from mcp_toolserver.protocol.sampling import Rounds

        made = Rounds()
        self.changes.when_forgotten(made.forget)
        return made

    async def list_tools(
        self, context: Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        """All tools on one page, because many clients never request a second. The list of the stateless
        protocol is the same for every client."""
        refuse_cursor(params)
        await self.dispatcher.registry.foreign.look()
        samples = not is_stateless(context) and _offers_model(context)
        tools = translate.tools(self.dispatcher, samples=samples, structured=self.structured)
        choices = await self.dispatcher.described_choices({tool.name for tool in tools})
        for tool in tools:
            tool.description = f"{tool.description}{choices.get(tool.name, '')}"
        return mcp.ListToolsResult(tools=tools)

    async def call_tool(
        self, context: Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """Run a call. The dispatcher returns every failure as a result, except an unknown name."""
        try:
            if self.runs_in_rounds(context, params):
                return await self._call_in_rounds(context, params)
            client = Client(self, context, params)
            try:
                answer = await self._dispatched(params, client)
            finally:
                # No progress can be sent any more, and the client's model cannot answer.
                client.is_open = False
        except UnknownTool:
            asked = params.name[:128]
            near = " or ".join(get_close_matches(asked, sorted(self.offered), n=2))
            hint = f"; did you mean {near}?" if near else ""
            raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {visible(asked)}{hint}") from None
        pending = client.pending if answer.pending else None
        return pending or self._response(answer, context)

    def runs_in_rounds(self, context: Context, params: mcp.CallToolRequestParams) -> bool:
        """Whether a call uses the model of a stateless client. Raises: UnknownTool."""
        return (
            bool(self.dispatcher.without_model)
            and is_stateless(context)
            and _offers_model(context)
            and self.dispatcher.needs_client_model(params.name, params.arguments)
        )

    async def _call_in_rounds(
        self, context: Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """Start a call that uses the client's model, or go on with it; see `sampling`."""
        from mcp_toolserver.protocol.sampling import RoundCall, answers_turns

        owner, rounds = self.client_ids.id_for(context), self.rounds
        call = rounds.continued(owner, params)
        if call is None:
            if answers_turns(params):
                return translate.result(_EXPIRED, context.protocol_version)
            if not rounds.has_room(owner):
                return translate.result(_TOO_MANY, context.protocol_version)
            call = RoundCall(self, context, params)
            rounds.start(call, partial(self._dispatched, params, call), self.background)
        call.open(context)
        try:
            answer = await rounds.answer(call)
        finally:
            call.is_open = False
        if isinstance(answer, mcp.InputRequiredResult):
            return answer
        pending = call.pending if answer.pending else None
        return pending or self._response(answer, context)

    async def call_as_task(
        self, context: Context, params: mcp.CallToolRequestParams, task: "Task"
    ) -> dict[str, JsonValue]:
        """Run a call of an existing tool as a task."""
        answer = await self._dispatched(params, TaskClient(self, context, params, task))
        return self._response(answer, context)

    def _response(self, answer: Result, context: Context) -> dict[str, JsonValue]:
        version = context.protocol_version
        return translate.result(answer, version, context.meta, structured=self.structured)

    async def _dispatched(self, params: mcp.CallToolRequestParams, client: "Client") -> Result:
        options = CallOptions(
            seconds_to_answer=client.seconds_to_answer(params),
            room=client.known.room,
            call_id=correlation(client.context.meta),
        )
        with self.changes.on_behalf_of(client.owner):
            answer = await self.dispatcher.call(params.name, params.arguments, client, options)
            if answer.saved_output is not None:
                self.changes.changed("output", answer.saved_output.handle)
            return answer

    async def roots_changed(self, context: Context, _: mcp.NotificationParams | None) -> None:
        """Handle roots/list_changed: the next call asks for the roots again."""
        self.roots.changed(context)

    def work_ended(self, owner: str, message: str) -> None:
        """Send `message` to the client `owner`, or to every client if it is about one of their schedules."""
        message = self.dispatcher.shown(message)
        is_schedule = owner == runs_of(owner_of(self.dispatcher.user))
        for name, connection in self.client_ids.connections.items():
            if is_schedule or name == owner:
                self.background.start(partial(notify, connection, message), name="a notice")

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool. Without it, the SDK runs tools/list for every HTTP call."""
        try:
            return self.dispatcher.registry.find(name).spec.schema
        except UnknownTool:
            return None


class Client(Asker):
    """The client of one call. Implements `Caller`."""

    def __init__(self, handlers: Handlers, context: Context, params: mcp.InputResponseRequestParams) -> None:
        super().__init__(context, params, handlers.questions, handlers.ask_seconds)
        self.owner = handlers.client_ids.id_for(context)
        client, mark = context.session.client_params, _mark(context.request)
        self.known = known_client(client and client.client_info)
        named = f"{client.client_info.name} {client.client_info.version}" if client else ""
        self.name = f"{named} {mark}" if mark else named
        """The client's name and version; over HTTP also a digest of its session, or its address."""
        self.handlers = handlers
        self.is_open = True
        """Whether the request is not answered yet."""
        self._reports = 0
        self._model: BackChannelModel | None = None

    async def report(self, message: str) -> None:
        """Send progress. Its total is unknown; the count only has to rise."""
        token = (self.context.meta or {}).get("progress_token")
        if not self.is_open or (isinstance(token, str) and len(token) > _TOKEN_LIMIT):
            return
        self._reports += 1
        await self.context.session.report_progress(float(self._reports), message=message)

    async def roots(self) -> Sequence[Sequence[str]]:
        folders = await self.handlers.roots.of(self.context)
        return () if folders is None else (folders,)

    def restrictions(self) -> ClientRestrictions | None:
        return restrictions(self.context.params)

    def sampling(self) -> "Model | None":
        """The client's model, which answers over the open connection of the handshake protocol."""
        if self._model is None and _offers_model(self.context) and not is_stateless(self.context):
            from mcp_toolserver.protocol.sampling import BackChannelModel

            self._model = BackChannelModel(self.context, lambda: self.is_open)
        return self._model

    def seconds_to_answer(self, params: mcp.CallToolRequestParams) -> float | None:
        """Seconds within which a call has to be answered; None if the client's timeout is unknown."""
        # A call that uses the client's model cannot go on in the background.
        server = self.handlers.dispatcher
        may_use = server.without_model and self.sampling()
        if may_use and server.needs_client_model(params.name, params.arguments):
            return math.inf
        return self.known.timeout and self.known.timeout - _MARGIN


class TaskClient(Client):
    """The client of a call that runs as a task, which can outlive its request."""

    def __init__(
        self, handlers: Handlers, context: Context, params: mcp.CallToolRequestParams, task: "Task"
    ) -> None:
        super().__init__(handlers, context, params)
        self._task = task

    async def answer(self, key: str, request: mcp.ElicitRequest) -> mcp.ElicitResult | None:
        if not self.can_be_asked(request):
            raise NobodyToAsk
        return await self._task.ask(key, request)

    async def report(self, message: str) -> None:
        self._task.say(message)
        if self._task.in_request:
            await super().report(message)

    def sampling(self) -> None:
        return None

    def seconds_to_answer(self, params: mcp.CallToolRequestParams) -> float:
        return math.inf


def known_client(client: mcp.Implementation | None) -> KnownClient:
    """What is known of a client; nothing of one that does not say who it is."""
    found = _CLIENTS.get(next(filter(client.name.startswith, _CLIENTS), "") if client else "", KnownClient())
    is_older = client and found.since and _version(client.version) < found.since
    return replace(found, timeout=None) if is_older else found


def _version(text: str) -> tuple[int, ...]:
    """`1.2.3-rc1` → (1, 2, 3); empty for what is no version."""
    numbers = text.partition("-")[0].split(".")
    is_version = all(part.isascii() and part.isdecimal() and len(part) < 9 for part in numbers)
    return tuple(map(int, numbers)) if is_version else ()


def refuse_cursor(params: mcp.PaginatedRequestParams | None) -> None:
    """Reject a cursor for a list of one page."""
    if params is not None and params.cursor:
        raise MCPError(mcp.INVALID_PARAMS, "Invalid cursor")


def _offers_model(context: Context) -> bool:
    """Whether the client offers its model with tools (sampling)."""
    declared = context.session.client_capabilities
    sampling = declared and declared.sampling
    if sampling is None or sampling.tools is None:
        return False
    return is_version_at_least(context.protocol_version, _TOOLS_SINCE)


def _mark(request: Any) -> str:
    """A digest of the session, else the address; empty on stdio."""
    if request is None:
        return ""
    if session := request.headers.get(_SESSION) or request.query_params.get(_SSE_SESSION):
        return f"#{sha256(session.encode()).hexdigest()[:8]}"
    return f"@{request.client.host}" if request.client else ""
