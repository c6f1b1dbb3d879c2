"""Serving one client over standard input and output.

The output may still have a reader when the input has ended: a shell script pipes requests into the server and
reads the answers. Requests that only read get a few seconds to finish then; commands and requests that change
something are cancelled at once.

While serving, descriptor 0 is the null device and descriptor 1 is standard error, so a stray print cannot
corrupt the JSON-RPC stream.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
)

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import UnknownTool
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol.rate_limit import (
    ConcurrencyLimiter,
    ConnectionStats,
    Incoming,
    Outgoing,
    RequestLimits,
)
from mcp_toolserver.protocol.stdio.lines import standard_lines
from mcp_toolserver.protocol.stdio.streams import LineWriter, on_lines
from mcp_toolserver.protocol.translate import only_reads

READ_SECONDS = 5.0
"""How long requests that only read may take after the end of input."""

_READING = frozenset(
    {
        "initialize",
        "server/discover",
        "ping",
        "logging/setLevel",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    }
)

_NOT_WAITED_FOR = frozenset(
    {
        Capability.PROCESS,
        Capability.SESSIONS,
        Capability.POWERSHELL,
        Capability.CONTAINERS,
        Capability.CLONES,
        Capability.LANGUAGES,
        # Nobody can answer a question any more.
        Capability.ASK,
    }
)
"""Capabilities of tools that start a command or wait for the client."""


async def serve_stdio(
    server: Server[Any],
    limits: RequestLimits,
    reads: Callable[[JSONRPCRequest], bool],
    ended: Callable[[], None],
) -> None:
    """Serve until the client closes standard input and requests that only read are answered.

    `reads` selects those requests. `ended` is called before the remaining requests are cancelled.
    """
    # The only client may use the whole limit.
    stats = ConnectionStats(ConcurrencyLimiter(replace(limits, of_one=limits.requests)), client="")
    reader, writer = on_lines(await standard_lines())
    incoming = DrainedIncoming(reader, writer, stats, reads, ended)
    await server.run(incoming, Outgoing(writer, stats), server.create_initialization_options())


def reads(dispatcher: Dispatcher, request: JSONRPCRequest) -> bool:
    """Whether a request only reads and starts no command, so that the server finishes it."""
    if request.method != "tools/call":
        return request.method in _READING
    try:
        entry = dispatcher.registry.find(str((request.params or {}).get("name")))
    except UnknownTool:
        # The answer is an error, which takes no time.
        return True
    if entry.spec.forwards or entry.spec.needs & _NOT_WAITED_FOR:
        return False
    return only_reads(entry, dispatcher.level(entry), dispatcher.reach(entry))


@dataclass(eq=False, frozen=True)
class DrainedIncoming(Incoming):
    """Messages of the client. When its input ends, its requests are finished or cancelled."""

    sink: LineWriter
    reads: Callable[[JSONRPCRequest], bool]
    ended: Callable[[], None]
    _cancelled: set[RequestId] = field(default_factory=set[RequestId])

    async def next_cancellation(self) -> SessionMessage | None:
        """After the end of input: return the next cancellation, which the server handles like one from the
        client.

        Calls `ended` and returns None once all read-only requests are answered, the client stopped reading,
        or the time is over.
        """
        if self._is_reading():
            for request in self.stats.in_progress:
                if not self.reads(request) and request.id not in self._cancelled:
                    self._cancelled.add(request.id)
                    return _cancellation(request.id)
            await self._finish_reading()
        self.ended()
        return None

    async def dropped(self, request_id: RequestId) -> None:
        """Answer a request that this class cancelled; the client did not cancel it and expects an answer."""
        if request_id in self._cancelled:
            error = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
            await self.sink.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))

    def _is_reading(self) -> bool:
        return any(self.reads(request) for request in self.stats.in_progress)

    async def _finish_reading(self) -> None:
        with anyio.move_on_after(READ_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._give_up_unread, tasks.cancel_scope)
                while self._is_reading():
                    await self.stats.settled.wait()
                tasks.cancel_scope.cancel()

    async def _give_up_unread(self, scope: anyio.CancelScope) -> None:
        await self.sink.wait_for_reader_gone()
        scope.cancel()


def _cancellation(request_id: RequestId) -> SessionMessage:
    params = {"requestId": request_id, "reason": "the input has ended"}
    message = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
    return SessionMessage(message)
