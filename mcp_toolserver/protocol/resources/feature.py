"""What clients can have beside tools: resources, prompts, completion, notices of changes.

Clients wait for the first answer of a server on stdio, and few ask for these first. So all there is at start
are the names of the methods; what answers them (`desk`) is imported with the first request, or with the first
change that somebody could be told of.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mcp_types as mcp
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions
from pydantic import BaseModel

from mcp_toolserver.changes import Thing
from mcp_toolserver.protocol.feature import ToolServer
from mcp_toolserver.protocol.handlers import Handlers

if TYPE_CHECKING:
    from mcp_toolserver.protocol.desk import Desk
    from mcp_toolserver.protocol.notices import Further, Notice
    from mcp_toolserver.protocol.prompts import PromptSource
    from mcp_toolserver.protocol.source import Source
    from mcp_toolserver.protocol.sources.outputs import Outputs

_METHODS: Mapping[str, type[BaseModel]] = {
    "resources/list": mcp.PaginatedRequestParams,
    "resources/templates/list": mcp.PaginatedRequestParams,
    "resources/read": mcp.ReadResourceRequestParams,
    "resources/subscribe": mcp.SubscribeRequestParams,
    "resources/unsubscribe": mcp.UnsubscribeRequestParams,
    "subscriptions/listen": mcp.SubscriptionsListenRequestParams,
    "prompts/list": mcp.PaginatedRequestParams,
    "prompts/get": mcp.GetPromptRequestParams,
    "completion/complete": mcp.CompleteRequestParams,
}

_LOSING_TOOLS = ("claude-code", "local-agent-mode-")
"""How clients call themselves that show no tools of a server which declares completion. Claude Code did so in
2.1 (anthropics/claude-code, "MCP tools not exposed when server advertises 'completions' capability"), and no
release is known to have ended it; the second is what Claude Desktop calls the Claude Code within it. They are
served completion like everybody, and not told of it."""

_DECLARING = ("initialize", "server/discover")


def _nothing() -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Beside:
    """Implements `Feature`."""

    handlers: Handlers
    outputs: "Outputs"
    security: str
    """What is enforced here, for people and models to read."""
    roots: Sequence[str] = ()
    settings: Callable[[], Mapping[str, object]] = _nothing
    """What the operator decided, as far as callers may know it."""
    sources: Sequence["Source"] = ()
    """Further resources; they are listed behind the server's own."""
    prompts: Sequence["PromptSource"] = ()
    """Further prompts."""
    changing: NotificationOptions = field(default_factory=lambda: NotificationOptions(resources_changed=True))
    """The lists that can change."""
    further: dict[str, "Further"] = field(default_factory=dict[str, "Further"])
    """By the key in the filter of `subscriptions/listen`, what else can be listened to."""

    def join(self, server: ToolServer) -> None:
        """Serve all of it."""
        for method, params in _METHODS.items():
            server.add_request_handler(method, params, self._answering(method))
        server.changes = self.changing
        server.middleware.append(_declaring)
        self.handlers.changes.hear = self._heard

    def tell(self, notice: "Notice", owners: frozenset[str] | None = None) -> None:
        """Tell clients of something that they asked to be told of; see `Notices.tell`."""
        self.desk.notices.tell(notice, owners)

    @cached_property
    def desk(self) -> "Desk":
        """Where requests are answered."""
        from mcp_toolserver.protocol.desk import open_desk

        return open_desk(self)

    @property
    def is_open(self) -> bool:
        """Whether anybody has asked for any of it."""
        return "desk" in vars(self)

    def _answering(self, method: str) -> Callable[[ServerRequestContext[Any, Any], Any], Awaitable[Any]]:
        def answer(context: ServerRequestContext[Any, Any], params: Any) -> Awaitable[Any]:
            return self.desk.answers[method](context, params)

        return answer

    def _heard(self, thing: Thing, owners: frozenset[str], listed: bool) -> None:
        if self.handlers.owners.connections or self.is_open:
            self.desk.notices.heard(thing, owners, listed=listed)


async def _declaring(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware: keep from clients what makes them lose tools."""
    result = await call_next(ctx)
    return _kept_back(result, ctx.params) if ctx.method in _DECLARING else result


def _kept_back(result: HandlerResult, params: Mapping[str, Any] | None) -> HandlerResult:
    if isinstance(result, dict) and _name(params or {}).startswith(_LOSING_TOOLS):
        result["capabilities"].pop("completions", None)
    return result


def _name(params: Mapping[str, Any]) -> str:
    """What the client calls itself, in either era."""
    meta: Mapping[str, object] = params.get("_meta") or {}
    match params.get("clientInfo") or meta.get(mcp.CLIENT_INFO_META_KEY):
        case {"name": str() as name}:
            return name
        case _:
            return ""
