"""The parts put together. It imports everything, so it is imported after the broker is forked."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import anyio
import platformdirs
from anyio.abc import TaskStatus

from mcp_toolserver.capabilities import PRICES, Capability, Prices, Search
from mcp_toolserver.dispatch import Dispatcher
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.rules import Policy, Vocabulary, parse
from mcp_toolserver.policy.watchdog import commands
from mcp_toolserver.protocol.guidance import instructions
from mcp_toolserver.protocol.handlers import Handlers, build
from mcp_toolserver.protocol.stdio import serve_stdio
from mcp_toolserver.registry import Registry, discover
from mcp_toolserver.runtime.beneath import below
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.grant import Machine
from mcp_toolserver.runtime.processes import CommandLimits, Commands
from mcp_toolserver.runtime.programs import Programs
from mcp_toolserver.runtime.search import Ripgrep
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.outputs import Outputs

Leave = Callable[[int], NoReturn]


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """A server, ready to serve or to be called."""

    settings: Settings
    dispatcher: Dispatcher
    roots: tuple[str, ...]
    outputs: Outputs
    commands: Commands | None
    broker: Broker | None

    async def aclose(self) -> None:
        """Kill every command and remove what was kept for callers."""
        if self.commands is not None:
            await self.commands.aclose()
        if self.broker is not None:
            self.broker.close()
        self.outputs.close()


def assemble(settings: Settings, broker: Broker | None, ripgrep: str | None) -> Assembly:
    """Put a server together.

    Raises:
        SettingsError: a tool, toolset, rule or root is unknown or wrong.
    """
    registry = Registry(discover())
    offered = registry.select(settings.toolsets, settings.tools, settings.exclude_tools)
    policy = _policy(settings, registry)
    state = state_folder(settings)
    outputs = Outputs(state)
    workspace = Workspace(settings.root, readable=outputs.folder, hides=_hides(policy, state, outputs))
    limits = CommandLimits(foreground_seconds=settings.foreground_seconds)
    running = broker and Commands(broker, workspace, outputs, limits)
    machine = Machine(
        prices=prices(broker),
        workspace=workspace,
        outputs=outputs,
        search=_search(broker, ripgrep, hiding=_may_hide(policy, state, workspace.roots)),
        processes=running and running.within,
        jobs=running,
    )
    dispatcher = Dispatcher(
        registry=registry,
        offered=offered,
        policy=policy,
        host=machine,
        objections=(commands(_commands(registry)),),
    )
    return Assembly(
        settings=settings,
        dispatcher=dispatcher,
        roots=workspace.roots,
        outputs=outputs,
        commands=running,
        broker=broker,
    )


def prices(broker: Broker | None) -> Prices:
    """What this host has, and what it costs while nothing confines commands.

    A background command can exist only where commands can, so following one costs the same.
    """
    if broker is None:
        return {need: PRICES[need] for need in (Capability.FS_READ, Capability.FS_WRITE)}
    return {**PRICES, Capability.JOBS: PRICES[Capability.PROCESS]}


def _search(
    broker: Broker | None, ripgrep: str | None, *, hiding: bool
) -> Callable[[Workspace], Search] | None:
    if broker is None:
        return None
    programs = Programs(broker)
    return lambda workspace: Ripgrep(programs, workspace, program=ripgrep, hiding=hiding)


def _commands(registry: Registry) -> frozenset[str]:
    """Tools whose subjects are commands."""
    return frozenset(name for name, entry in registry.entries.items() if entry.spec.kind == "execute")


def _policy(settings: Settings, registry: Registry) -> Policy:
    words = Vocabulary(canonical=lambda name: registry.find(name).spec.name, commands=_commands(registry))
    ceiling = settings.permission_mode
    return Policy(
        ceiling=ceiling,
        granted=ceiling if settings.granted is None else min(settings.granted, ceiling),
        deny=tuple(parse(text, words) for text in settings.deny),
        ask=tuple(parse(text, words) for text in settings.ask),
        allow=tuple(parse(text, words) for text in settings.allow),
    )


def _hides(policy: Policy, state: str, outputs: Outputs) -> Callable[[tuple[str, ...]], bool]:
    """What the operator hides, and the server's own state, which may lie in a root that is a home folder."""

    def hides(spellings: tuple[str, ...]) -> bool:
        absolute = spellings[-1]
        if policy.hides(spellings):
            return True
        kept = outputs.folder()
        return below(state, absolute) is not None and (kept is None or below(kept, absolute) is None)

    return hides


def _may_hide(policy: Policy, state: str, roots: tuple[str, ...]) -> bool:
    """False spares a search the question for each file."""
    return policy.hides_anything or any(below(root, state) is not None for root in roots)


def state_folder(settings: Settings) -> str:
    """The private folder of the server; not created before it is needed."""
    return os.path.realpath(
        settings.state_dir or platformdirs.user_state_dir("mcp-toolserver", appauthor=False)
    )


def serve(assembly: Assembly, leave: Leave) -> int:
    """Serve until the client is gone or a signal comes; the exit status. `leave` ends the process at once.

    Raises:
        SettingsError: the address cannot be listened on, or its token file not used.
    """
    return anyio.run(_serve, assembly, leave)


async def _serve(assembly: Assembly, leave: Leave) -> int:
    status, wrong = 0, None

    async def end_on_signal(*, task_status: TaskStatus[None]) -> None:
        nonlocal status
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            task_status.started()
            async for number in received:
                status = 128 + number
                if assembly.settings.transport == "stdio":
                    # The thread that waits for standard input cannot be interrupted.
                    await assembly.aclose()
                    leave(status)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        await tasks.start(end_on_signal)
        try:
            await _transport(assembly)
        except SettingsError as error:
            # Raised from here it would come out as a group.
            wrong = error
        tasks.cancel_scope.cancel()
    await assembly.aclose()
    if wrong is not None:
        raise wrong
    return status


async def _transport(assembly: Assembly) -> None:
    settings = assembly.settings
    handlers = Handlers(
        dispatcher=assembly.dispatcher, outputs=assembly.outputs, ask_seconds=settings.ask_seconds
    )
    server = build(handlers, instructions(settings.permission_mode, assembly.roots))
    if settings.transport == "stdio":
        await serve_stdio(server)
        return
    # A server on stdio is spared this import.
    from mcp_toolserver.protocol import access, http

    access.check_bind(settings.host, has_token_file=settings.token_file is not None)
    token = access.read_token_file(settings.token_file) if settings.token_file else access.make_token()
    options = http.HttpOptions(
        host=settings.host,
        port=settings.port,
        token=token,
        max_body=settings.max_body,
        max_calls=settings.max_calls,
        max_sessions=settings.max_sessions,
    )

    def announce(address: str) -> None:
        shown = "" if settings.token_file else f"mcp-toolserver: bearer token, shown once: {token}\n"
        sys.stderr.write(f"{shown}mcp-toolserver: listening on {address}\n")

    await http.serve_http(server, options, sse=settings.transport == "sse", started=announce)
