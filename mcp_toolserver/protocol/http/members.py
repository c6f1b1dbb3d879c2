"""The clients that the gateway serves: the holders of one token, or of one token for each name.

Each name has an MCP server of its own, with its own sessions, streams, limits, commands and handles. So a
request can reach nothing of another name, and revoking a name ends all that it has by closing its server.
"""

import hmac
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Message, Receive

from mcp_toolserver.protocol.http.request_checks import INVALID_TOKEN
from mcp_toolserver.protocol.http.tokens import Grant, GrantFile
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, LimiterOfName, RequestLimits
from mcp_toolserver.protocol.refusals import NO_TOKENS, Refusal

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Interval at which the file of tokens is looked at while no request comes."""

_END_SECONDS = 1.0
"""How long requests may take to end after their name was revoked, until their server is closed under them."""


class Disconnects:
    """Lets requests in progress see a disconnect. The inner application already cleans up after a client that
    disconnects."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self._listening: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """Disconnect every request in progress, and each that comes."""
        self.ended.set()
        for scope in tuple(self._listening):
            scope.cancel()

    async def receive(self, receive: Receive) -> Message:
        """The next ASGI message; a disconnect after `end`."""
        if not self.ended.is_set():
            with anyio.CancelScope() as scope:
                self._listening.add(scope)
                try:
                    return await receive()
                finally:
                    self._listening.discard(scope)
        return {"type": "http.disconnect"}


@dataclass(eq=False, kw_only=True)
class Member:
    """An open server, of a name or of all clients."""

    app: ASGIApp
    limiter: ConcurrencyLimiter
    grant: Grant | None = None
    """None without named tokens."""
    disconnects: Disconnects = field(default_factory=Disconnects)
    """Its end begins to close the server, which accepts nothing more."""
    closed: anyio.Event = field(default_factory=anyio.Event)
    _requests: int = 0
    _left: anyio.Event = field(default_factory=anyio.Event)

    @contextmanager
    def request(self) -> Generator[None]:
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self._left.set()

    async def idle(self) -> None:
        """Return once no request is in progress."""
        while self._requests:
            self._left = anyio.Event()
            await self._left.wait()


@dataclass(frozen=True, kw_only=True)
class OneToken:
    """Finds the server of a request where there is a single token."""

    token: bytes = field(repr=False)
    member: Member

    async def of(self, token: bytes) -> Member | Refusal:
        """The server for the holder of `token`, or why there is none."""
        return self.member if hmac.compare_digest(token, self.token) else INVALID_TOKEN


@dataclass(frozen=True, kw_only=True)
class NamedTokens:
    """The file of tokens, and how to build the server of a name."""

    file: GrantFile
    build: Callable[[Grant], AbstractAsyncContextManager[Server[Any]]]
    """Its end ends all that the clients of the name have made, also when it is cancelled."""


Endpoint = Callable[[Server[Any], ConcurrencyLimiter], AbstractAsyncContextManager[ASGIApp]]
"""Opens the transport of a server."""


@dataclass(eq=False)
class ManyTokens:
    """Finds the server of a request where each name has a token."""

    tokens: NamedTokens
    endpoint: Endpoint
    limiter: ConcurrencyLimiter
    tasks: TaskGroup
    _open: dict[str, Member] = field(default_factory=dict[str, Member])
    _locks: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])

    async def of(self, token: bytes) -> Member | Refusal:
        file = self.tokens.file
        if (grant := file.find(token)) is not None:
            # One request of a name at a time, so that it gets one server, after the end of the last one.
            async with self._locks.setdefault(grant.name, anyio.Lock()):
                if (member := await self._member(grant.name, token)) is not None:
                    return member
        return NO_TOKENS if file.problem else INVALID_TOKEN

    async def watch(self) -> None:
        """End the servers of names whose grant no longer holds, as long as this runs."""
        while True:
            self.end_revoked()
            await anyio.sleep(LOOK_SECONDS)

    def end_revoked(self) -> None:
        """End the servers of names whose grant no longer holds."""
        grants = self.tokens.file.grants()
        for name, member in self._open.items():
            grant = grants.get(name)
            if grant is None or not (member.grant and grant.permits_like(member.grant)):
                member.disconnects.end()
            else:
                member.grant = grant

    def end(self) -> None:
        for member in self._open.values():
            member.disconnects.end()

    async def _member(self, name: str, token: bytes) -> Member | None:
        """The server of a name; None if the token was revoked or renamed while this request waited."""
        self.end_revoked()
        if name in self._open and (member := self._open[name]).disconnects.ended.is_set():
            await member.closed.wait()
        grant = self.tokens.file.find(token)
        if grant is None or grant.name != name:
            return None
        return self._open.get(name) or await self.tasks.start(self._serve, grant)

    async def _serve(self, grant: Grant, *, task_status: TaskStatus[Member]) -> None:
        """Run the server of a name until it is ended."""
        of_one = grant.max_calls or self.limiter.limits.of_one
        limits = RequestLimits(of_one=of_one, per_minute=grant.per_minute)
        limiter = LimiterOfName(grant.name, limits, self.limiter)
        closed = anyio.Event()
        try:
            async with self.tokens.build(grant) as server, self.endpoint(server, limiter) as app:
                self._open[grant.name] = member = Member(app=app, limiter=limiter, grant=grant, closed=closed)
                task_status.started(member)
                await member.disconnects.ended.wait()
                with anyio.move_on_after(_END_SECONDS):
                    await member.idle()
        except Exception:
            if grant.name not in self._open:
                # The request that needed this server gets the error.
                raise
            log.exception("The server of the name %s failed and is closed; the others go on.", grant.name)
        finally:
            self._open.pop(grant.name, None)
            closed.set()


Members = OneToken | ManyTokens


@asynccontextmanager
async def many_tokens(
    tokens: NamedTokens, endpoint: Endpoint, limiter: ConcurrencyLimiter
) -> AsyncGenerator[ManyTokens]:
    """The servers of all names, while the context is open."""
    async with anyio.create_task_group() as servers:
        members = ManyTokens(tokens, endpoint, limiter, servers)
        async with anyio.create_task_group() as watching:
            watching.start_soon(members.watch)
            try:
                yield members
            finally:
                watching.cancel_scope.cancel()
                members.end()
