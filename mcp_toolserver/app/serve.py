"""Serving what was put together, over the transport that the operator chose."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import anyio

from mcp_toolserver.assembly import Assembly
from mcp_toolserver.ending import Leave, until_the_end
from mcp_toolserver.protocol.beside import Beside
from mcp_toolserver.protocol.codex import SandboxState
from mcp_toolserver.protocol.factory import build
from mcp_toolserver.protocol.feature import Feature, ToolServer
from mcp_toolserver.protocol.guidance import instructions
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.quota import Allowance
from mcp_toolserver.protocol.stdio import serve_stdio
from mcp_toolserver.protocol.task_feature import TaskFeature
from mcp_toolserver.settings import Settings, told

if TYPE_CHECKING:
    from mcp_toolserver.protocol.tasks import Tasks


@dataclass(frozen=True, kw_only=True)
class Door:
    """Where HTTP clients come in: opened before the server is confined, which then can open none."""

    sockets: Sequence[socket.socket]
    token: str
    announced: bool
    """Whether the token is new, so that the operator has to be told it."""


def open_door(settings: Settings) -> Door | None:
    """Listen, unless the client is on standard input.

    Raises:
        SettingsError: the address cannot be listened on, or its token file not used.
    """
    if settings.transport == "stdio":
        return None
    # A server on stdio is spared this import.
    from mcp_toolserver.protocol import access, http

    access.check_bind(settings.host, has_token_file=settings.token_file is not None)
    token = access.read_token_file(settings.token_file) if settings.token_file else access.make_token()
    sockets = http.bind(settings.host, settings.port)
    return Door(sockets=sockets, token=token, announced=settings.token_file is None)


def serve(assembly: Assembly, door: Door | None, leave: Leave) -> int:
    """Serve until the client is gone or a signal comes; the exit status. `leave` ends the process at once."""
    return anyio.run(until_the_end, partial(_transport, assembly, door), assembly, leave)


def mcp_server(
    assembly: Assembly,
    further: Sequence[Feature] = (),
    *,
    token: str = "",
    adapt: Callable[[Beside], Beside] = lambda own: own,
) -> ToolServer:
    """What is served on every transport, to whoever has `token`. `further` features join last, and `adapt`
    may add to what there is beside tools.
    """
    handlers = Handlers(
        dispatcher=assembly.dispatcher, ask_seconds=assembly.settings.ask_seconds, changes=assembly.changes
    )
    own = adapt(beside(assembly, handlers))

    def tasks() -> "Tasks":
        # Few clients know tasks; a server on stdio is spared these imports until one comes.
        from mcp_toolserver.protocol.task_notices import connect
        from mcp_toolserver.protocol.tasks import Tasks

        made = Tasks(handlers, assembly.tasks(), principal=_principal(token))
        connect(made, own)
        return made

    features = (own, TaskFeature(tasks), SandboxState(), *further)
    return build(handlers, instructions(assembly.standing, assembly.roots), features)


def beside(assembly: Assembly, handlers: Handlers) -> Beside:
    """What clients get beside tools."""
    return Beside(
        handlers=handlers,
        outputs=assembly.outputs,
        security=assembly.standing.summary,
        roots=assembly.roots,
        settings=lambda: told(assembly.settings, assembly.roots),
    )


async def _transport(assembly: Assembly, door: Door | None, ended: Callable[[], None]) -> None:
    settings = assembly.settings
    server = mcp_server(assembly, token=door.token if door else "")
    allowance = Allowance(
        requests=settings.max_calls,
        of_one=settings.max_calls_per_client,
        per_minute=settings.calls_per_minute,
    )
    if door is None:
        await serve_stdio(server, allowance, ended)
        return
    from mcp_toolserver.observe.lines import say
    from mcp_toolserver.protocol import http

    options = http.HttpOptions(
        host=settings.host,
        token=door.token,
        max_body=settings.max_body,
        allowance=allowance,
        max_sessions=settings.max_sessions,
    )

    def announce(address: str) -> None:
        as_json = settings.log_format == "json"
        if door.announced:
            say(f"mcp-toolserver: bearer token, shown once: {door.token}", as_json=as_json)
        say(f"mcp-toolserver: listening on {address}", as_json=as_json)

    await http.serve_http(server, options, door.sockets, sse=settings.transport == "sse", started=announce)


def _principal(token: str) -> str:
    """On whose behalf all requests come: whoever has the token, or started the server on stdio."""
    return f"token {sha256(token.encode()).hexdigest()[:32]}" if token else "stdio"
