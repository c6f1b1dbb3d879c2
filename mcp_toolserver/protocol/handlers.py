"""Answering for tools, in both eras of the protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.changes import Changes
from mcp_toolserver.dispatch import Caller, Dispatcher, Manner, Result
from mcp_toolserver.errors import UnknownTool
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.codex import narrowing
from mcp_toolserver.protocol.correlation import correlation
from mcp_toolserver.protocol.elicit import Asker, Questions
from mcp_toolserver.protocol.feature import refuse_cursor
from mcp_toolserver.protocol.messages import Messages
from mcp_toolserver.protocol.owners import Owners
from mcp_toolserver.protocol.roots import ClientRoots
from mcp_toolserver.text.visible import visible

_SESSION = "mcp-session-id"
_SSE_SESSION = "session_id"

_TOKEN_LIMIT = 256
"""Characters of a progress token; each notification echoes it."""

_Context = ServerRequestContext[Any, Any]


class Followed(Protocol):
    """A call that its client follows, whether or not the request that began it is still open."""

    @property
    def in_request(self) -> bool:
        """Whether it is."""
        ...

    def say(self, message: str) -> None:
        """How it is going."""
        ...

    async def ask(self, key: str, request: mcp.ElicitRequest) -> mcp.ElicitResult | None:
        """See `Passage`. Raises: TimedOut: nobody answered."""
        ...


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """Answers requests by asking the dispatcher."""

    dispatcher: Dispatcher
    ask_seconds: float
    questions: Questions = field(default_factory=Questions)
    roots: ClientRoots = field(default_factory=ClientRoots)
    messages: Messages = field(default_factory=Messages)
    changes: Changes = field(default_factory=Changes)

    @cached_property
    def owners(self) -> Owners:
        """Whose things are whose."""
        return Owners(self.changes.forget)

    def caller(self, context: _Context, params: mcp.InputResponseRequestParams) -> tuple[Caller, Asker]:
        """Who sent a request, and what asks their human."""
        asker = Asker(context, params, self.questions, self.ask_seconds)
        return _Client(context, asker, self.roots, self.messages), asker

    async def list_tools(self, _: _Context, params: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
        """All tools on one page: many clients never ask for a second."""
        refuse_cursor(params)
        return mcp.ListToolsResult(tools=translate.tools(self.dispatcher))

    async def call_tool(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """One call; the dispatcher turns every failure but an unknown name into a result."""
        caller, asker = self.caller(context, params)
        with self.changes.on_behalf_of(self.owners.of(context)):
            try:
                manner = Manner(call_id=correlation(context.meta))
                answer = self._listing(
                    await self.dispatcher.call(params.name, params.arguments, caller, manner)
                )
            except UnknownTool:
                raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {visible(params.name[:128])}") from None
        if answer.pending and asker.pending is not None:
            return asker.pending
        return translate.result(answer, context.protocol_version)

    async def call_as_task(
        self, context: _Context, params: mcp.CallToolRequestParams, task: Followed
    ) -> dict[str, JsonValue]:
        """The same call, of a tool that there is, for a client that follows it as a task."""
        asker = Asker(context, params, self.questions, self.ask_seconds, passage=task.ask)
        caller = _Client(context, asker, self.roots, self.messages, task)
        manner = Manner(patient=True, call_id=correlation(context.meta))
        with self.changes.on_behalf_of(self.owners.of(context)):
            answer = self._listing(await self.dispatcher.call(params.name, params.arguments, caller, manner))
        return translate.result(answer, context.protocol_version)

    def _listing(self, answer: Result) -> Result:
        """List what was kept beside the answer."""
        if answer.spill is not None:
            self.changes.changed("output", answer.spill.handle)
        return answer

    async def roots_changed(self, context: _Context, _: mcp.NotificationParams | None) -> None:
        """Ask again at the next call."""
        self.roots.changed(context)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool, which spares the SDK a whole tools/list per HTTP call."""
        try:
            return self.dispatcher.registry.find(name).label.schema
        except UnknownTool:
            return None


class _Client:
    """The caller of one call."""

    def __init__(
        self,
        context: _Context,
        asker: Asker,
        roots: ClientRoots,
        messages: Messages,
        task: Followed | None = None,
    ) -> None:
        self._context = context
        self._task = task
        self._roots = roots
        self._messages = messages
        self._reports = 0
        self.ask = asker.ask
        self.elicit = asker.elicit

    @property
    def name(self) -> str:
        """The client's own name for itself, over HTTP with a mark of its session, or its address."""
        client = self._context.session.client_params
        named = f"{client.client_info.name} {client.client_info.version}" if client else ""
        return f"{named} {mark}" if (mark := _mark(self._context.request)) else named

    async def report(self, message: str) -> None:
        """Progress has no known end; the count only has to rise."""
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

    async def roots(self) -> Sequence[str] | None:
        return await self._roots.of(self._context)

    def narrowing(self) -> Narrowing | None:
        return narrowing(self._context.params)


def _mark(request: Any) -> str:
    """The mark of a session that is told, else the address; nothing on stdio."""
    if request is None:
        return ""
    if session := request.headers.get(_SESSION) or request.query_params.get(_SSE_SESSION):
        return f"#{sha256(session.encode()).hexdigest()[:8]}"
    return f"@{request.client.host}" if request.client else ""
