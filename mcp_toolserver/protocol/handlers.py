"""The request handlers of tools."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least
from pydantic import JsonValue

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.errors import Unavailable, UnknownTool
from mcp_toolserver.pipeline.call import Caller, CallOptions, Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.call_id import correlation
from mcp_toolserver.protocol.client_roots import ClientRoots
from mcp_toolserver.protocol.client_timeouts import seconds_to_answer
from mcp_toolserver.protocol.codex_sandbox_state import restrictions
from mcp_toolserver.protocol.elicitation.elicit import Asker, Questions
from mcp_toolserver.protocol.log_messages import Messages
from mcp_toolserver.protocol.mcp_server import refuse_cursor
from mcp_toolserver.protocol.resources.client_identity import ClientIds
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.text.lines.escape_invisible import visible

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.model import Model
    from mcp_toolserver.protocol.sampling.back_channel import BackChannelModel
    from mcp_toolserver.protocol.sampling.rounds import RoundCall, Rounds

_SESSION = "mcp-session-id"
_SSE_SESSION = "session_id"

_TOKEN_LIMIT = 256
"""Maximum characters of a progress token, because each notification echoes it."""

_Context = ServerRequestContext[Any, Any]

_TOO_MANY = Result(
    text="Too many calls use the client's model at the same time. Wait for one to end, and call again.",
    error=Unavailable.kind,
)
_EXPIRED = Result(
    text="This call has ended: it was cancelled, waited too long for the client's model, or was already "
    "continued. Make it again from the start.",
    error=Unavailable.kind,
)


class TaskHandle(Protocol):
    """A call that runs as a task; its request may already be answered."""

    @property
    def in_request(self) -> bool:
        """Whether the request is still open."""
        ...

    def say(self, message: str) -> None:
        """Report progress."""
        ...

    async def ask(self, key: str, request: mcp.ElicitRequest) -> mcp.ElicitResult | None:
        """See `Elicit`. Raises: TimedOut: nobody answered."""
        ...


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """Answers requests with the dispatcher."""

    dispatcher: Dispatcher
    ask_seconds: float
    questions: Questions = field(default_factory=Questions)
    roots: ClientRoots = field(default_factory=ClientRoots)
    messages: Messages = field(default_factory=Messages)
    changes: ChangeEvents = field(default_factory=ChangeEvents)
    background: Background = field(default_factory=Background)
    """Runs calls that outlive their request."""
    only_client: str = ""
    """The id of the only client of the transport; empty if there can be several."""

    @cached_property
    def client_ids(self) -> ClientIds:
        """Identifies the client of a request."""
        return ClientIds(self.changes.forget, only=self.only_client, user=self.dispatcher.user)

    @cached_property
    def rounds(self) -> "Rounds":
        """The calls that are answered in rounds, for the model of stateless clients."""
        # Few clients offer their model.
        from mcp_toolserver.protocol.sampling.rounds import Rounds

        made = Rounds()
        self.changes.when_forgotten(made.forget)
        return made

    def caller(self, context: _Context, params: mcp.InputResponseRequestParams) -> tuple[Caller, Asker]:
        """The client of a request, and the asker for its user."""
        asker = Asker(context, params, self.questions, self.ask_seconds)
        return _Client(context, asker, self), asker

    async def list_tools(
        self, context: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        """All tools on one page, because many clients never request a second. The list of the stateless
        protocol is the same for every client."""
        refuse_cursor(params)
        samples = not _is_stateless(context) and _offers_model(context)
        return mcp.ListToolsResult(tools=translate.tools(self.dispatcher, samples=samples))

    async def call_tool(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """Run a call. The dispatcher returns every failure as a result, except an unknown name."""
        try:
            if self.runs_in_rounds(context, params):
                return await self._call_in_rounds(context, params)
            asker = Asker(context, params, self.questions, self.ask_seconds)
            caller = _Client(context, asker, self)
            try:
                answer = await self._dispatched(context, params, caller)
            finally:
                caller.close()
        except UnknownTool:
            raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {visible(params.name[:128])}") from None
        if answer.pending and asker.pending is not None:
            return asker.pending
        return translate.result(answer, context.protocol_version, context.meta)

    def runs_in_rounds(self, context: _Context, params: mcp.CallToolRequestParams) -> bool:
        """Whether a call uses the model of a stateless client. Raises: UnknownTool."""
        return (
            bool(self.dispatcher.without_model)
            and _is_stateless(context)
            and _offers_model(context)
            and self.dispatcher.needs_client_model(params.name, params.arguments)
        )

    async def _call_in_rounds(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """Start a call that uses the client's model, or go on with it; see `sampling.rounds`."""
        from mcp_toolserver.protocol.sampling.rounds import RoundCall, answers_turns

        owner, rounds = self.client_ids.id_for(context), self.rounds
        call = rounds.continued(owner, params)
        if call is None:
            if answers_turns(params):
                return translate.result(_EXPIRED, context.protocol_version)
            if not rounds.has_room(owner):
                return translate.result(_TOO_MANY, context.protocol_version)
            asker = Asker(context, params, self.questions, self.ask_seconds)
            client = _Client(context, asker, self)
            client.model = call = RoundCall(client, params, rounds=1 if params.request_state else 0)
            rounds.start(call, partial(self._dispatched, context, params, client), self.background)
        call.client.open(context)
        try:
            answer = await rounds.answer(call)
        finally:
            call.client.close()
        if isinstance(answer, mcp.InputRequiredResult):
            return answer
        if answer.pending and call.client.pending is not None:
            return call.client.pending
        return translate.result(answer, context.protocol_version, context.meta)

    async def _dispatched(
        self, context: _Context, params: mcp.CallToolRequestParams, caller: "_Client"
    ) -> Result:
        client = context.session.client_params
        options = CallOptions(
            # A call that uses the client's model cannot go on in the background.
            seconds_to_answer=math.inf
            if caller.sampling() and self.dispatcher.needs_client_model(params.name, params.arguments)
            else seconds_to_answer(client and client.client_info),
            call_id=correlation(context.meta),
        )
        with self.changes.on_behalf_of(caller.owner):
            return self._listing(await self.dispatcher.call(params.name, params.arguments, caller, options))

    async def call_as_task(
        self, context: _Context, params: mcp.CallToolRequestParams, task: TaskHandle
    ) -> dict[str, JsonValue]:
        """Run a call of an existing tool as a task."""
        asker = Asker(context, params, self.questions, self.ask_seconds, elicit=task.ask)
        caller = _Client(context, asker, self, task)
        options = CallOptions(seconds_to_answer=math.inf, call_id=correlation(context.meta))
        with self.changes.on_behalf_of(self.client_ids.id_for(context)):
            answer = self._listing(await self.dispatcher.call(params.name, params.arguments, caller, options))
        return translate.result(answer, context.protocol_version, context.meta)

    def _listing(self, answer: Result) -> Result:
        """List the saved output of a truncated result as a resource."""
        if answer.saved_output is not None:
            self.changes.changed("output", answer.saved_output.handle)
        return answer

    async def roots_changed(self, context: _Context, _: mcp.NotificationParams | None) -> None:
        """Handle roots/list_changed: the next call asks for the roots again."""
        self.roots.changed(context)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool. Without it, the SDK runs tools/list for every HTTP call."""
        try:
            return self.dispatcher.registry.find(name).spec.schema
        except UnknownTool:
            return None


class _Client:
    """The client of one call."""

    def __init__(
        self,
        context: _Context,
        asker: Asker,
        handlers: Handlers,
        task: TaskHandle | None = None,
    ) -> None:
        self._context = context
        self._task = task
        self._roots = handlers.roots
        self._messages = handlers.messages
        self.owner = handlers.client_ids.id_for(context)
        self._reports = 0
        self.ask = asker.ask
        self.elicit = asker.elicit
        self._asker = asker
        self._is_open = True
        self.model: BackChannelModel | RoundCall | None = None
        """The client's own model, once a call uses it."""

    @property
    def pending(self) -> mcp.InputRequiredResult | None:
        """See `Asker.pending`."""
        return self._asker.pending

    def open(self, context: _Context) -> None:
        """`context` is the request that is open now."""
        self._context, self._is_open = context, True

    def close(self) -> None:
        """The request is answered: no progress can be sent until another one is open."""
        self._is_open = False
        if self.model is not None:
            self.model.close()

    def sampling(self) -> "Model | None":
        """The client's model, in the stateless protocol only for a call that runs in rounds."""
        if self.model is not None or not self._can_sample:
            return self.model
        from mcp_toolserver.protocol.sampling.back_channel import BackChannelModel

        self.model = BackChannelModel(self._context)
        return self.model

    @property
    def _can_sample(self) -> bool:
        return self._task is None and not _is_stateless(self._context) and _offers_model(self._context)

    @property
    def name(self) -> str:
        """The client's name and version; over HTTP also a digest of its session, or its address."""
        client = self._context.session.client_params
        named = f"{client.client_info.name} {client.client_info.version}" if client else ""
        return f"{named} {mark}" if (mark := _mark(self._context.request)) else named

    async def report(self, message: str) -> None:
        """Send progress. Its total is unknown; the count only has to rise."""
        if self._task is not None:
            self._task.say(message)
            if not self._task.in_request:
                return
        token = (self._context.meta or {}).get("progress_token")
        if not self._is_open or (isinstance(token, str) and len(token) > _TOKEN_LIMIT):
            return
        self._reports += 1
        await self._context.session.report_progress(float(self._reports), message=message)

    async def tell(self, message: str) -> bool:
        return await self._messages.send(self._context, message)

    async def roots(self) -> Sequence[Sequence[str]]:
        folders = await self._roots.of(self._context)
        return () if folders is None else (folders,)

    def restrictions(self) -> ClientRestrictions | None:
        return restrictions(self._context.params)


def _is_stateless(context: _Context) -> bool:
    return is_version_at_least(context.protocol_version, translate.MODERN)


def _offers_model(context: _Context) -> bool:
    """Whether the client offers its model with tools (sampling)."""
    declared = context.session.client_capabilities
    if declared is None or declared.sampling is None:
        return False
    from mcp_toolserver.protocol.sampling.messages import declares

    return declares(declared, context.protocol_version)


def _mark(request: Any) -> str:
    """A digest of the session, else the address; empty on stdio."""
    if request is None:
        return ""
    if session := request.headers.get(_SESSION) or request.query_params.get(_SSE_SESSION):
        return f"#{sha256(session.encode()).hexdigest()[:8]}"
    return f"@{request.client.host}" if request.client else ""
