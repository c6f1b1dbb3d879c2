"""The connection to one upstream server: made on first use, and again after a failure."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import mcp_types as mcp
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, ValidationError

from mcp_toolserver import __version__
from mcp_toolserver.errors import Failed, TimedOut, ToolError, Unavailable
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

MOST_WATCHED = 256
"""Resources of a connection whose changes are announced."""

_NEWS_SECONDS, _MOST_NEWS = 1.0, 50
"""A change is announced at most once in this time; of more notifications in it, none is read: everything
counts as changed."""

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
        self.watched: set[str] = set()
        """The addresses of resources whose changes are announced."""
        self.news: Callable[[str], object] = lambda _: None
        """Called with the address of a watched resource that has changed; empty for the list of resources."""
        self._open, self._found, self._background = open_transport, found, background
        self._due: set[str] = set()
        self._counted_since, self._count = -math.inf, 0
        self._stream: asyncio.Task[None] | None = None
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

    async def watch(self, uri: str) -> bool:
        """Announce changes of a resource from now on; returns whether the server reports them.

        Raises:
            ToolError: as for `request`; Unavailable also where too many are watched.
        """
        client = await self.client()
        if uri in self.watched:
            return True
        resources = client.server_capabilities.resources
        if resources is None or not resources.subscribe:
            return False
        if len(self.watched) >= MOST_WATCHED:
            raise Unavailable(f"No more than {MOST_WATCHED} resources of a server can be watched.")
        self.watched.add(uri)
        try:
            await self.request(lambda client: self._subscribe(client, {uri}))
        except BaseException:
            self.watched.discard(uri)
            raise
        return True

    def unwatch(self, uri: str) -> None:
        """Stop announcing changes of a resource."""
        if uri not in self.watched:
            return
        self.watched.discard(uri)
        if (client := self._client) and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            request = mcp.UnsubscribeRequest(params=mcp.UnsubscribeRequestParams(uri=uri))

            async def send() -> None:
                with suppress(ToolError):
                    await self.request(lambda one: one.session.send_request(request, mcp.EmptyResult))

            self._background.start(send, name=f"the end of a subscription to {self.upstream.name}")

    async def _subscribe(self, client: Client, uris: Collection[str]) -> None:
        """Have the server report changes of these, and in the stateless protocol of its lists."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            for uri in uris:
                request = mcp.SubscribeRequest(params=mcp.SubscribeRequestParams(uri=uri))
                await client.session.send_request(request, mcp.EmptyResult)
            return
        before, ready = self._stream, anyio.Event()
        self._stream = self._background.start(
            lambda: self._listen(client, ready), name=f"the notifications of {self.upstream.name}"
        )
        await ready.wait()
        if before:
            before.cancel()

    async def _listen(self, client: Client, ready: anyio.Event) -> None:
        """Hold a stream of notifications open; `_notice` gets them."""
        try:
            while self._client in (None, client):
                # It was lost, or the server has none.
                with suppress(MCPError, RuntimeError, TimeoutError):
                    async with client.listen(
                        tools_list_changed=True,
                        prompts_list_changed=True,
                        resources_list_changed=True,
                        resource_subscriptions=sorted(self.watched),
                    ) as stream:
                        if ready.is_set():
                            # What was missed meanwhile is not known.
                            self._announce(*self.watched)
                        ready.set()
                        async for _ in stream:
                            pass
                if not ready.is_set():
                    return
                await anyio.sleep(DELAYS[2])
        finally:
            ready.set()

    def _announce(self, *uris: str) -> None:
        if uris and not self._due:
            asyncio.get_running_loop().call_later(_NEWS_SECONDS, self._flush)
        self._due.update(uris)

    def _flush(self) -> None:
        due, self._due = self._due, set[str]()
        for uri in due:
            self.news(uri)

    def is_flooding(self) -> bool:
        """Count a notification of a change; returns whether there are too many to read it."""
        now = time.monotonic()
        if now - self._counted_since > _NEWS_SECONDS:
            self._counted_since, self._count = now, 0
        self._count += 1
        if self._count > _MOST_NEWS:
            self.is_stale = True
            self._announce("", *self.watched)
        return self._count > _MOST_NEWS

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
                    if client.server_capabilities.resources:
                        self._announce("")
                    if self.watched or client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        with suppress(MCPError):
                            await self._subscribe(client, self.watched)
                    await self._ended.wait()
        except Exception as error:  # noqa: BLE001  of whatever kind, it is why there is no connection
            self._why = (self.auth and self.auth.refusal) or (
                f"The MCP server {name} {self.gone or f'cannot be reached: {cause(error)}'}."
            )
        finally:
            self._client = None
            if self._stream:
                self._stream.cancel()
            # Reading them connects again, and what was missed meanwhile is not known.
            self._announce(*self.watched)
            if not ready.is_set() or self.gone:
                self._next_try = time.monotonic() + DELAYS[min(self._failures, len(DELAYS) - 1)]
                self._failures += 1
                self._why = self._why or f"The MCP server {name} {self.gone}."
            ready.set()

    async def _notice(self, message: IncomingMessage) -> None:
        match message:
            case mcp.ToolListChangedNotification() | mcp.PromptListChangedNotification():
                self.is_stale = True
            case mcp.ResourceListChangedNotification():
                self._announce("")
            case mcp.ResourceUpdatedNotification(params=params) if params.uri in self.watched:
                self._announce(params.uri)
            case _:
                pass

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
                for message in _messages(line, relay, connection):
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


_CHANGES = (b"/list_changed", b"notifications/resources/updated")
_NOTICES = (b"notifications/progress", b"notifications/cancelled", b"notifications/subscriptions/")


def _messages(line: bytes, relay: ErrorRelay, connection: Connection) -> list[SessionMessage]:
    """What the client uses of a line; the operator hears of what is no message."""
    if line.startswith(b"{") and b'"id"' not in line:
        # There may be a flood of notifications.
        is_change = any(notice in line for notice in _CHANGES)
        if connection.is_flooding() if is_change else not any(notice in line for notice in _NOTICES):
            return []
    try:
        found = [] if not line.strip() else parse(line)
        return [SessionMessage(mcp.jsonrpc_message_adapter.validate_python(one.fields)) for one in found]
    except (Malformed, ValidationError):
        relay.say(f"what it printed is no message: {line[:200].decode(errors='replace')}")
        return []
