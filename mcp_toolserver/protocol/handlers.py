"""The request handlers of tools."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.errors import UnknownTool
from mcp_toolserver.pipeline.call import Caller, CallOptions, ClientFolders, Result
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
from mcp_toolserver.text.lines.escape_invisible import visible

_SESSION = "mcp-session-id"
_SSE_SESSION = "session_id"

_TOKEN_LIMIT = 256
"""Maximum characters of a progress token, because each notification echoes it."""

_Context = ServerRequestContext[Any, Any]


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
    only_client: str = ""
    """The id of the only client of the transport; empty if there can be several."""

    @cached_property
    def client_ids(self) -> ClientIds:
        """Identifies the client of a request."""
        return ClientIds(self.changes.forget, only=self.only_client, user=self.dispatcher.user)

    def caller(self, context: _Context, params: mcp.InputResponseRequestParams) -> tuple[Caller, Asker]:
        """The client of a request, and the asker for its user."""
        asker = Asker(context, params, self.questions, self.ask_seconds)
        return _Client(context, asker, self), asker

    async def list_tools(self, _: _Context, params: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
        """All tools on one page, because many clients never request a second."""
        refuse_cursor(params)
        return mcp.ListToolsResult(tools=translate.tools(self.dispatcher))

    async def call_tool(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """Run a call. The dispatcher returns every failure as a result, except an unknown name."""
        caller, asker = self.caller(context, params)
        with self.changes.on_behalf_of(self.client_ids.id_for(context)):
            try:
                client = context.session.client_params
                options = CallOptions(
                    seconds_to_answer=seconds_to_answer(client and client.client_info),
                    call_id=correlation(context.meta),
                )
                answer = self._listing(
                    await self.dispatcher.call(params.name, params.arguments, caller, options)
                )
            except UnknownTool:
                raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {visible(params.name[:128])}") from None
        if answer.pending and asker.pending is not None:
            return asker.pending
        return translate.result(answer, context.protocol_version)

    async def call_as_task(
        self, context: _Context, params: mcp.CallToolRequestParams, task: TaskHandle
    ) -> dict[str, JsonValue]:
        """Run a call of an existing tool as a task."""
        asker = Asker(context, params, self.questions, self.ask_seconds, elicit=task.ask)
        caller = _Client(context, asker, self, task)
        options = CallOptions(seconds_to_answer=math.inf, call_id=correlation(context.meta))
        with self.changes.on_behalf_of(self.client_ids.id_for(context)):
            answer = self._listing(await self.dispatcher.call(params.name, params.arguments, caller, options))
        return translate.result(answer, context.protocol_version)

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
        if isinstance(token, str) and len(token) > _TOKEN_LIMIT:
            return
        self._reports += 1
        await self._context.session.report_progress(float(self._reports), message=message)

    async def tell(self, message: str) -> None:
        await self._messages.send(self._context, message)

    async def roots(self) -> ClientFolders | None:
        return await self._roots.of(self._context)

    def restrictions(self) -> ClientRestrictions | None:
        return restrictions(self._context.params)


def _mark(request: Any) -> str:
    """A digest of the session, else the address; empty on stdio."""
    if request is None:
        return ""
    if session := request.headers.get(_SESSION) or request.query_params.get(_SSE_SESSION):
        return f"#{sha256(session.encode()).hexdigest()[:8]}"
    return f"@{request.client.host}" if request.client else ""
