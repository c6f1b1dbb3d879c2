"""The connection to one upstream server: made on first use, and again after a failure."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import mcp_types as mcp
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import FileUrl, ValidationError

from mcp_toolserver import __version__
from mcp_toolserver.errors import Failed, TimedOut, Unavailable
from mcp_toolserver.gateway.messages import Malformed, encode, parse
from mcp_toolserver.gateway.server_process import ErrorRelay, TooLong, how_it_ended, lines_of
from mcp_toolserver.gateway.upstream_file import Upstream
from mcp_toolserver.protocol.client import cause
from mcp_toolserver.protocol.client_identity import GATEWAY
from mcp_toolserver.protocol.upstreams.oauth import Authorization
from mcp_toolserver.runtime.background import Background, ended
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess

DELAYS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds after each failure in a row before the next attempt."""

MOST_BYTES = 16 << 20
"""Of a message."""

_START_SECONDS = 30.0
_EXIT_SECONDS = 1.0

Open = Callable[["Connection"], AbstractAsyncContextManager[TransportStreams]]
"""Opens the transport. Raises: Unavailable."""
T = TypeVar("T")
Answer = Callable[[mcp.ElicitRequestParams], Awaitable[mcp.ElicitResult]]


async def nothing_to_note() -> Sequence[str]:
    """For a server that is no process of ours."""
    return ()


class Connection:
    """A connection that is made when it is needed. `found` gets each client that is connected, before any
    call uses it."""

    def __init__(
        self,
        upstream: Upstream,
        roots: tuple[str, ...],
        open_transport: Open,
        found: Callable[[Client], Awaitable[None]],
        background: Background,
    ) -> None:
        self.upstream, self.roots = upstream, roots
        self.auth: Authorization | None = None
        self.gone = ""
        """Why the server answers no more, as its transport sees it, to follow its name."""
        self.notes: Callable[[], Awaitable[Sequence[str]]] = nothing_to_note
        """What happened to protected names, and where the server could not connect, since the last call."""
        self.is_stale = False
        """Whether the server says that what it lists has changed."""
        self.asking: list[Answer] = []
        """What answers questions of the server to the user, of each call that is in progress."""
        self._open, self._found, self._background = open_transport, found, background
        self._client: Client | None = None
        self._connecting = anyio.Lock()
        self._ended = anyio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._failures, self._next_try = 0, -math.inf
        self._why = ""

    @property
    def state(self) -> str:
        """`connected`, `not connected`, or why it failed."""
        return "connected" if self._client else self._why or "not connected"

    @property
    def is_busy(self) -> bool:
        """Whether it is connected, or has to wait until it tries again."""
        return self._client is not None or time.monotonic() < self._next_try

    async def client(self) -> Client:
        """The connected client. Raises: Unavailable: there is none, or not yet again."""
        async with self._connecting:
            if self._client is not None:
                if self.is_stale:
                    self.is_stale = False
                    await self._found(self._client)
                return self._client
            if (wait := self._next_try - time.monotonic()) > 0:
                raise Unavailable(f"{self._why} The next attempt is made in {math.ceil(wait)} s.")
            if self._serving is not None:
                # Its process is gone before the next one starts.
                await ended(self._serving)
            ready = anyio.Event()
            self._ended = anyio.Event()
            name = f"the MCP server {self.upstream.name}"
            self._serving = self._background.start(lambda: self._serve(ready), name=name)
            await ready.wait()
            if self._client is None:
                raise Unavailable(self._why)
            return self._client

    async def request(self, send: Callable[[Client], Awaitable[T]], answer: Answer | None = None) -> T:
        """Send a request; `answer` answers questions of the server meanwhile.

        Raises:
            Unavailable: there is no connection.
            TimedOut, Failed: there was no answer in time, or an error.
        """
        client = await self.client()
        if answer:
            self.asking.append(answer)
        try:
            with anyio.fail_after(self.upstream.timeout):
                return await send(client)
        except TimeoutError:
            name, seconds = self.upstream.name, self.upstream.timeout
            raise TimedOut(f"The MCP server {name} did not answer within {seconds:g} s.") from None
        except MCPError as error:
            if self.auth and self.auth.refusal:
                raise Unavailable(self.auth.refusal) from None
            if self.gone or error.error.code == mcp.CONNECTION_CLOSED:
                self.close()
                raise Unavailable(
                    f"The MCP server {self.upstream.name} {self.gone or 'closed it'}."
                ) from None
            raise Failed(f"The MCP server {self.upstream.name} answers: {error.error.message}") from None
        except (ValidationError, RuntimeError) as error:
            raise Failed(f"The answer of the MCP server {self.upstream.name} is not valid: {error}") from None
        finally:
            if answer:
                self.asking.remove(answer)

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        self._client = None
        self._ended.set()

    async def _serve(self, ready: anyio.Event) -> None:
        name, self.gone, client = self.upstream.name, "", None
        try:
            with anyio.fail_after(min(self.upstream.timeout, _START_SECONDS)) as limit:
                async with Client(
                    self._open(self),
                    client_info=mcp.Implementation(name=GATEWAY, version=__version__),
                    elicitation_callback=self._elicit,
                    list_roots_callback=self._list_roots,
                    message_handler=self._notice,
                    cache=None,
                ) as client:
                    await self._found(client)
                    limit.deadline = math.inf
                    self._client, self._failures, self._why = client, 0, ""
                    ready.set()
                    await self._ended.wait()
        except Exception as error:  # noqa: BLE001  of whatever kind, it is why there is no connection
            self._why = (self.auth and self.auth.refusal) or (
                f"The MCP server {name} {self.gone or f'cannot be reached: {cause(error)}'}."
            )
        finally:
            self._client = None
            if not ready.is_set() or self.gone:
                self._next_try = time.monotonic() + DELAYS[min(self._failures, len(DELAYS) - 1)]
                self._failures += 1
                self._why = self._why or f"The MCP server {name} {self.gone}."
            ready.set()

    async def _notice(self, message: IncomingMessage) -> None:
        self.is_stale = self.is_stale or isinstance(message, _CHANGES)

    async def _elicit(
        self, context: ClientRequestContext, params: mcp.ElicitRequestParams
    ) -> mcp.ElicitResult | mcp.ErrorData:
        """Whose call the question belongs to is known only while there is a single one."""
        if len(self.asking) != 1:
            return mcp.ElicitResult(action="decline")
        return await self.asking[0](params)

    async def _list_roots(self, context: ClientRequestContext) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(Path(root).as_uri())) for root in self.roots])


@asynccontextmanager
async def process_transport(
    process: InteractiveProcess, connection: Connection
) -> AsyncGenerator[TransportStreams]:
    """The streams of a server that was started, which end with it, and it with them."""
    relay = ErrorRelay(connection.upstream.name)
    process.on_stderr(relay.take)
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        try:
            async for line in lines_of(process, MOST_BYTES):
                for message in _messages(line, relay):
                    await incoming.send(message)
            connection.gone = await how_it_ended(process, _EXIT_SECONDS)
        except TooLong:
            connection.gone = f"sent a message of more than {MOST_BYTES:,} bytes, so it was ended"
        incoming.close()
        connection.close()

    async def write() -> None:
        async for message in outgoing:
            line = encode(message.message.model_dump(mode="json", by_alias=True, exclude_unset=True))
            try:
                with anyio.fail_after(_START_SECONDS):
                    await process.stdin.write(line)
            except (TimeoutError, Unavailable):
                connection.gone = connection.gone or "does not read what it is sent"
                connection.close()

    async with incoming, received, sent, outgoing, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield received, sent
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await process.end()


_CHANGES = (mcp.ToolListChangedNotification, mcp.PromptListChangedNotification)
_READ = ("progress", "cancelled", "tools/list_changed", "prompts/list_changed")
_NOTICES = tuple(f"notifications/{name}".encode() for name in _READ)


def _messages(line: bytes, relay: ErrorRelay) -> list[SessionMessage]:
    """What the client uses of a line; the operator hears of what is no message."""
    if line.startswith(b"{") and b'"id"' not in line and not any(notice in line for notice in _NOTICES):
        # A notification that nothing here reads; there may be a flood of them.
        return []
    try:
        found = [] if not line.strip() else parse(line)
        return [SessionMessage(mcp.jsonrpc_message_adapter.validate_python(one.fields)) for one in found]
    except (Malformed, ValidationError):
        relay.say(f"what it printed is no message: {line[:200].decode(errors='replace')}")
        return []
