"""Serves the application over the configured transport, and shuts down.

A signal or the end of input starts the shutdown, and a timeout bounds it. Running calls are cancelled, which
records them and kills their processes. If the timeout expires first, the server records the remaining calls
and exits; the broker then kills the remaining processes.
"""

import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from mcp_toolserver.app.compose import Application, application_of
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.protocol.client_identity import ClientRoots
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.instructions import instructions
from mcp_toolserver.protocol.mcp_server import Feature, ToolServer, sandbox_state
from mcp_toolserver.protocol.rate_limit import RequestLimits
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.protocol.stdio.server import reads, serve_stdio
from mcp_toolserver.protocol.tasks.feature import TaskFeature
from mcp_toolserver.settings import Settings, public_settings
from mcp_toolserver.stores.disk import MIB, free_bytes

if TYPE_CHECKING:
    from mcp_toolserver.protocol.http.tokens import Grant, GrantFile
    from mcp_toolserver.protocol.tasks.tasks import Tasks


log = logging.getLogger(__name__)

Leave = Callable[[int], NoReturn]
"""Ends the process at once, with an exit status."""

_EXPIRY_SECONDS = 600.0
"""Time between two removals of expired saved outputs while no call comes."""

_SCHEDULES_DELAY_SECONDS = 1.0
"""Time between the start of the server and the first look at its schedules."""

_BROKER_SECONDS = 1.0
"""How long an answer of the broker counts, because anybody can ask."""


@dataclass(frozen=True, kw_only=True)
class HttpBinding:
    """The listening sockets and the tokens, opened before Landlock and seccomp forbid the server to open
    them."""

    sockets: Sequence[socket.socket]
    token: str
    """Empty with named tokens."""
    grants: "GrantFile | None"


def bind_http(settings: Settings) -> HttpBinding | None:
    """Listen for HTTP clients; returns None for stdio.

    Raises:
        SettingsError: the server cannot listen on the address, or cannot use the file of
            tokens.
    """
    if settings.transport == "stdio":
        if settings.tokens is not None:
            raise SettingsError("--tokens is for --transport http or sse; on stdio there is no token")
        return None
    if settings.tokens is not None and settings.token_file is not None:
        raise SettingsError("give --tokens or --token-file, not both: a token without a name has no limits")
    # A stdio server skips this import.
    from mcp_toolserver.protocol.http.server import bind, check_bind
    from mcp_toolserver.protocol.http.tokens import make_token, read_token_file

    has_tokens = settings.tokens is not None or settings.token_file is not None
    check_bind(settings.host, has_token_file=has_tokens)
    grants = open_grants(settings)
    token = read_token_file(settings.token_file) if settings.token_file else "" if grants else make_token()
    sockets = bind(settings.host, settings.port)
    return HttpBinding(sockets=sockets, token=token, grants=grants)


def open_grants(settings: Settings) -> "GrantFile | None":
    """The file of named tokens; None without one. Raises: SettingsError: it cannot be used."""
    if settings.tokens is None:
        return None
    from mcp_toolserver.protocol.http.tokens import GrantFile, ServerLimits

    limits = ServerLimits(ceiling=settings.permission_mode, roots=settings.root)
    return GrantFile.opened(settings.tokens, limits)


def serve(app: Application, binding: HttpBinding | None, leave: Leave) -> int:
    """Serve until the client leaves or a signal arrives; returns the exit status. `leave` exits at once."""
    return anyio.run(_serve, app, binding, leave)


async def _serve(app: Application, binding: HttpBinding | None, leave: Leave) -> int:
    if app.upstreams is not None:
        try:
            await app.upstreams.require()
        except Unavailable as error:
            await app.aclose()
            raise SettingsError(str(error)) from None
    return await run_until_shutdown(partial(_transport, app, binding), app, leave)


async def run_until_shutdown(
    work: Callable[[Callable[[], None]], Awaitable[None]], app: Application, leave: Leave
) -> int:
    """Run `work` until it ends or a signal arrives, then close `app`; returns the exit status.

    `work` gets a function to call when its input ends: the timeout starts then. A second signal ends the
    process at once.
    """
    working, ending, status = anyio.CancelScope(), anyio.Event(), 0

    def force_exit() -> NoReturn:
        app.record()
        leave(status)

    async def watch_signals(*, task_status: TaskStatus[None]) -> None:
        nonlocal status
        # nohup and other parents make a process ignore some of these.
        every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handled = (one for one in every if signal.getsignal(one) is not signal.SIG_IGN)
        with anyio.open_signal_receiver(*handled) as received:
            task_status.started()
            async for number in received:
                if ending.is_set():
                    force_exit()
                status = 128 + number
                ending.set()
                working.cancel()

    async def enforce_timeout() -> None:
        await ending.wait()
        await anyio.sleep(app.shutdown_timeout)
        force_exit()

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch_signals)
        tasks.start_soon(enforce_timeout)
        try:
            with working:
                await work(ending.set)
        finally:
            ending.set()
            with anyio.CancelScope(shield=True):
                await app.aclose()
        tasks.cancel_scope.cancel()
    return status


def mcp_server(
    app: Application,
    extra: Sequence[Feature] = (),
    *,
    token: str = "",
    only_client: str = "",
    adapt: Callable[[ResourceFeature], ResourceFeature] = lambda own: own,
) -> ToolServer:
    """Build the MCP server for every transport. `extra` features join last, and `adapt` may add resources and
    prompts. `only_client` owns all requests, on transports that have a single client.
    """
    handlers = Handlers(
        dispatcher=app.dispatcher,
        ask_seconds=app.settings.ask_seconds,
        changes=app.changes,
        only_client=only_client,
        roots=ClientRoots(app.windows, ignored=app.settings.client_roots == "ignore"),
        background=app.background,
        structured=app.settings.structured,
    )
    app.changes.on_end = handlers.work_ended
    own = adapt(resource_feature(app, handlers))

    def tasks() -> "Tasks":
        # Few clients support tasks, so a stdio server delays these imports until one connects.
        from mcp_toolserver.protocol.tasks.tasks import Tasks, connect

        # Over stdio, it is the process that started this server.
        holder = f"token {sha256(token.encode()).hexdigest()[:32]}" if token else "stdio"
        principal = f"name {app.user}" if app.user else holder
        made = Tasks(handlers, app.tasks(), principal=principal)
        app.providers.jobs.protocol_tasks = made.jobs_of
        connect(made, own)
        app.changes.when_forgotten(made.forget)
        return made

    # A client sends its policy only to a server that declares this; one that is sent is always applied.
    sandbox = () if app.settings.client_sandbox == "ignore" else (sandbox_state,)
    features = (own.join, TaskFeature(tasks).join, *sandbox, *extra)
    # On stdio the client started this server, else an operator.
    started_in = os.getcwd() if app.settings.transport == "stdio" else ""
    text = instructions(app.status, app.roots, started_in, user=app.user)
    return ToolServer(handlers, text, features)


def resource_feature(app: Application, handlers: Handlers) -> ResourceFeature:
    return ResourceFeature(
        handlers=handlers,
        outputs=app.shared.outputs,
        security=app.status.summary,
        roots=app.roots,
        settings=lambda: public_settings(app.settings, app.roots),
        upstreams=app.upstreams,
    )


async def _transport(app: Application, binding: HttpBinding | None, ended: Callable[[], None]) -> None:
    settings = app.settings
    limits = RequestLimits(
        requests=settings.max_calls,
        of_one=settings.max_calls_per_client,
        per_minute=settings.calls_per_minute,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upkeep, app)
        # An error in it is logged and ends nothing else.
        grants = None if binding is None else binding.grants
        if not app.settings.dry_run:
            app.background.start(partial(_schedules, app, grants), name="the scheduler")
        if binding is None:
            server = mcp_server(app, only_client=LOCAL)
            # In a task of its own: every message resumes the loop of the SDK, and all that awaits it.
            async with anyio.create_task_group() as serving:
                serving.start_soon(serve_stdio, server, limits, partial(reads, app.dispatcher), ended)
        else:
            await _serve_http(app, binding, limits)
        tasks.cancel_scope.cancel()


async def _schedules(app: Application, grants: "GrantFile | None") -> None:
    """Run schedules, and tasks that other servers left, once the first requests have been served."""
    await anyio.sleep(_SCHEDULES_DELAY_SECONDS)
    # A server that ends at once skips this import.
    from mcp_toolserver.app.schedules import Schedules

    await Schedules(app=app, grants=grants, adopts=app.settings.transport == "stdio").serve()


async def upkeep(app: Application) -> None:
    """Clean up after earlier servers, then end idle sessions and remove saved outputs as they expire."""
    await anyio.to_thread.run_sync(app.upkeep, abandon_on_cancel=True)
    if app.shared.broker is not None:
        # The log names what is hidden. Each command looks again.
        with suppress(Unavailable):
            await app.shared.broker.hidden_git()
    while True:
        await anyio.sleep(_EXPIRY_SECONDS)
        app.shared.outputs.expire()
        if app.shared.sessions is not None:
            app.shared.sessions.expire()


async def _serve_http(app: Application, binding: HttpBinding, limits: RequestLimits) -> None:
    settings = app.settings
    from mcp_toolserver.protocol.http.gate import HttpOptions
    from mcp_toolserver.protocol.http.members import NamedTokens
    from mcp_toolserver.protocol.http.server import serve_http
    from mcp_toolserver.telemetry.json_log import say

    options = HttpOptions(
        host=settings.host,
        names=settings.allowed_host,
        token=binding.token or None,
        max_body=settings.max_body,
        limits=limits,
        max_sessions=settings.max_sessions,
        unready=Readiness(app, binding.grants).unready,
    )

    def announce(address: str) -> None:
        as_json = settings.log_format == "json"
        if settings.tokens is None and settings.token_file is None:
            say(f"mcp-toolserver: bearer token, shown once: {binding.token}", as_json=as_json)
        say(f"mcp-toolserver: listening on {address}", as_json=as_json)

    server = (
        mcp_server(app, token=binding.token)
        if binding.grants is None
        else NamedTokens(file=binding.grants, build=partial(_server_of_name, app))
    )
    await serve_http(
        server,
        options,
        binding.sockets,
        sse=settings.transport == "sse",
        started=announce,
    )


@dataclass
class Readiness:
    """What keeps the server from doing its work."""

    app: Application
    grants: "GrantFile | None"
    _checked: float = -_BROKER_SECONDS
    """When the broker was asked, by the clock of the event loop."""
    _answers: bool = False
    _asking: anyio.Lock = field(default_factory=anyio.Lock)

    async def unready(self) -> Sequence[str]:
        """The parts that are not ready: `broker`, `tools`, `state folder`, `tokens`."""
        parts = {
            "tools": bool(self.app.dispatcher.available),
            "broker": await self._has_broker(),
            "state folder": self._has_room(),
            "tokens": self.grants is None or not self.grants.check(),
        }
        return [part for part, is_ready in parts.items() if not is_ready]

    async def _has_broker(self) -> bool:
        broker = self.app.shared.broker
        if broker is None:
            # This platform has none, and offers no tool that needs it.
            return True
        async with self._asking:
            if anyio.current_time() - self._checked >= _BROKER_SECONDS:
                try:
                    await anyio.to_thread.run_sync(broker.check, abandon_on_cancel=True)
                    self._answers = True
                except (Unavailable, OSError):
                    self._answers = False
                self._checked = anyio.current_time()
            return self._answers

    def _has_room(self) -> bool:
        """Whether the state folder can be written and has the reserve that the audit log needs."""
        state = self.app.shared.state
        try:
            folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                free = free_bytes(folder)
            finally:
                os.close(folder)
        except OSError:
            return False
        return os.access(state, os.W_OK) and (free is None or free >= self.app.settings.disk_reserve * MIB)


@asynccontextmanager
async def _server_of_name(app: Application, grant: "Grant") -> AsyncGenerator[ToolServer]:
    """The MCP server of a name, which gets its own commands and handles."""
    own = application_of(app, grant)
    app.users[grant.name] = own
    try:
        yield mcp_server(own)
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await own.end()
            except Exception:
                log.exception("Not all that the clients of %s had made was ended.", grant.name)
            finally:
                del app.users[grant.name]
