"""The upstream servers of the operator's file: a broker for each that is a process, and how it is reached.

A broker confines its server as that of `wrap` does. A process that was forked before this one confined itself
forks it for the first connection.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

from anyio import Lock, to_thread

from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.gateway.upstream_file import Upstream, read_upstreams
from mcp_toolserver.invocation import check_outside_roots
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker, BrokerPolicy, start_waiting_brokers
from mcp_toolserver.settings import Settings
from mcp_toolserver.text.file_names import lies_in

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from mcp_toolserver.app.compose import Application, Shared
    from mcp_toolserver.protocol.upstreams.connection import Connection, Open
    from mcp_toolserver.protocol.upstreams.oauth import Authorization
    from mcp_toolserver.protocol.upstreams.servers import UpstreamServers

IS_UPSTREAM = "IN_MCP_TOOLSERVER_GATEWAY"
"""The variable by which a server knows that it is an upstream server; see also `mcp_server._no_gateway`."""


@dataclass(frozen=True, kw_only=True)
class UpstreamHost:
    """An upstream server with what it needs from this machine."""

    upstream: Upstream
    settings: Settings
    """Those of this server, with the mode, roots and network of the upstream server."""
    broker: Broker | None = None
    """What starts it; None for a server with a URL."""
    folder: int = -1
    """The open folder that it starts in."""


def start_upstreams(
    settings: Settings,
    found: HostExecutables,
    environ: Mapping[str, str],
    start: Callable[[BrokerPolicy], Broker] | None = None,
) -> tuple[UpstreamHost, ...]:
    """Read the file, and start the brokers: by `start`, else by a fork of this process, which has one thread.

    Raises:
        SettingsError: the file is wrong, or asks for more than this server may do.
    """
    if settings.upstreams is None:
        return ()
    if IS_UPSTREAM in environ:
        raise SettingsError("this server is an upstream server of another one; it must have no --upstreams")
    every = read_upstreams(settings.upstreams, environ, os.path.expanduser("~"))

    @cache
    def policy_of(own: Settings) -> BrokerPolicy:
        # Most servers are confined alike, and each policy looks at many files.
        return confinement.broker_policy(own, found)

    planned = [_planned(one, settings, policy_of) for one in every]
    policies = [policy for _, policy in planned if policy]
    brokers = iter([start(one) for one in policies] if start else start_waiting_brokers(policies))
    return tuple(replace(host, broker=next(brokers)) if policy else host for host, policy in planned)


def _planned(
    upstream: Upstream, settings: Settings, policy_of: Callable[[Settings], BrokerPolicy]
) -> tuple[UpstreamHost, BrokerPolicy | None]:
    """The server, and how the broker that it needs has to confine it."""
    place = f"--upstreams: {upstream.name}"
    if upstream.mode > settings.permission_mode:
        raise SettingsError(f"{place}: its mode is above --permission-mode {settings.permission_mode.flag}")
    if settings.network == "none" and (upstream.url or upstream.network != "none"):
        raise SettingsError(f"{place}: it needs a network, and this server has --network none")
    if upstream.url:
        return UpstreamHost(upstream=upstream, settings=settings), None
    is_full = upstream.mode is Permission.DANGER_FULL_ACCESS
    network = "commands" if is_full else "hosts" if upstream.domains else str(upstream.network)
    own = replace(
        settings,
        permission_mode=upstream.mode,
        root=upstream.roots or settings.root,
        network=network,
        allow_domain=upstream.domains,
    )
    try:
        confinement.check(own)
        check_outside_roots(own, own.config)
        policy = policy_of(own)
        folder = os.open(upstream.cwd or own.root[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SettingsError(f"{place}: {error.filename}: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from None
    environment = {**policy.environment, **upstream.env, IS_UPSTREAM: "1"}
    host = UpstreamHost(upstream=upstream, settings=own, folder=folder)
    return host, replace(policy, environment=environment)


class UpstreamProcess:
    """Starts the process of an upstream server, for each connection anew."""

    def __init__(self, host: UpstreamHost, broker: Broker, shared: Shared) -> None:
        self._host, self._broker, self._shared = host, broker, shared
        self._preparing, self._is_ready = Lock(), False

    @asynccontextmanager
    async def open(self, roots: tuple[str, ...], connection: Connection) -> AsyncGenerator[TransportStreams]:
        """Start it with these folders. Raises: Unavailable."""
        # Only servers that are used need these.
        from mcp_toolserver.gateway.prepared import PreparedPackage
        from mcp_toolserver.gateway.server_process import OWNER, Notes, start_server
        from mcp_toolserver.protocol.upstreams.connection import process_transport

        await self._prepare()
        upstream, broker = self._host.upstream, self._broker
        # Connections share nothing.
        session = f"{upstream.name} {secrets.token_hex(8)}"
        is_confined = upstream.mode is not Permission.DANGER_FULL_ACCESS
        process = await start_server(
            broker,
            (upstream.command, *upstream.args),
            name=session,
            cwd=os.dup(self._host.folder),
            own_home=is_confined and "HOME" not in upstream.env,
            prepared=PreparedPackage(self._shared.state, upstream.name),
            roots=roots,
        )
        connection.notes = Notes(broker, process, session, writes=upstream.mode is Permission.WORKSPACE_WRITE)
        try:
            async with process_transport(process, connection) as streams:
                yield streams
        finally:
            broker.end_session(f"{OWNER} {session}")

    async def _prepare(self) -> None:
        """Wake the broker, and have it confine as the settings say. Raises: Unavailable."""
        async with self._preparing:
            if not self._is_ready:
                try:
                    await to_thread.run_sync(self._set_up)
                except SettingsError as error:
                    raise Unavailable(f"{self._host.upstream.name} cannot be confined: {error}.") from None
                self._is_ready = True

    def _set_up(self) -> None:
        from mcp_toolserver.app.policy import hide_from_commands
        from mcp_toolserver.runtime.processes.connections import Connections

        host, broker, shared = self._host, self._broker, self._shared
        is_full = host.upstream.mode is Permission.DANGER_FULL_ACCESS
        broker.wake()
        required = replace(host.settings, sandbox="auto" if is_full else "required")
        confinement.require_sandbox(required, broker.proof)
        roots = confinement.wanted_roots(host.settings)
        confinement.back_up_histories(broker, host.settings, shared.found.git, roots)
        hide_from_commands(host.settings, shared.policy, broker, shared.found.git)
        if host.settings.network == "hosts" and shared.audit:
            broker.connections = Connections(broker.report_connections(), shared.audit.add)


def upstream_servers(app: Application, hosts: Sequence[UpstreamHost]) -> UpstreamServers:
    """The upstream servers of an application, each with its pins. Raises: SettingsError: pins are damaged."""
    from mcp_toolserver.gateway.definitions import Definitions, normaliser
    from mcp_toolserver.protocol.upstreams.servers import MOST_LISTED, Server, UpstreamServers
    from mcp_toolserver.stores.pins import Pins

    def server(host: UpstreamHost) -> Server:
        upstream, broker = host.upstream, host.broker
        command = [upstream.command, *upstream.args] if broker else [upstream.url]
        places = (*host.settings.root, upstream.cwd, os.path.expanduser("~"))
        pins = Pins(app.shared.state, upstream.name, command)
        record = pins.load()
        if record and record.command != command:
            # Another command of the same name may be another server.
            record = None
        process = broker and UpstreamProcess(host, broker, app.shared)

        def opener(roots: tuple[str, ...]) -> Open:
            if process:
                return partial(process.open, roots)
            from mcp_toolserver.protocol.upstreams.remote import remote_transport

            return partial(remote_transport, upstream)

        return Server(
            upstream=upstream,
            definitions=Definitions(
                server=upstream.name, pins=pins, normal=normaliser(command, places, datetime.now(UTC))
            ),
            listed=record.listed if record else [],
            prompts=record.prompts if record else [],
            has_resources=record.has_resources if record else True,
            roots=partial(_roots, app, confinement.wanted_roots(host.settings) if broker else ()),
            open=opener,
            auth=None if broker else _authorization(app, upstream),
        )

    settings = app.settings
    return UpstreamServers(
        [server(host) for host in hosts],
        app.background,
        named_tools=frozenset(settings.tools),
        excluded=frozenset(settings.exclude_tools),
        most_listed=0 if "lean" in settings.toolsets else MOST_LISTED,
    )


def _authorization(app: Application, upstream: Upstream) -> Authorization | None:
    """None for a server to which the operator gave a header."""
    from mcp_toolserver.protocol.upstreams.oauth import Authorization

    if "authorization" in map(str.lower, upstream.headers):
        return None
    private, seconds = app.shared.web.private, app.settings.ask_seconds
    return Authorization(upstream, app.shared.state, private, seconds)


def _roots(app: Application, every: Sequence[str], usable: Sequence[str] | None) -> tuple[str, ...]:
    """Those of the folders `every` of an upstream server that it gets for a call that may use the folders
    `usable` of this server; None for all of them. A folder outside of the roots is a grant of the operator's
    to clients that have no token of their own."""
    mine = app.shared.workspace.roots
    usable = app.roots if usable is None else usable
    granted = [root for root in every if not app.user and not any(lies_in(one, root) for one in mine)]
    inside = [root for root in every if any(lies_in(one, root) for one in usable)]
    within = [one for one in usable if any(lies_in(root, one) for root in every)]
    return tuple(dict.fromkeys((*granted, *inside, *within)))
