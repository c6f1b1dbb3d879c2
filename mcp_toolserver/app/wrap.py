"""Builds and runs the gateway to one MCP server, for `wrap`."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import anyio

from mcp_toolserver.app.agent_policy import with_agent_policy
from mcp_toolserver.app.confinement import back_up_histories, wanted_roots
from mcp_toolserver.app.policy import (
    approvals_of,
    build_policy,
    hide_from_commands,
    lenient_rules,
    project_rules,
)
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.gateway.definitions import Definitions, Reach, normaliser
from mcp_toolserver.gateway.gate import Gate
from mcp_toolserver.gateway.prepared import PreparedPackage
from mcp_toolserver.gateway.pump import Pump, PumpLimits
from mcp_toolserver.gateway.server_process import ErrorRelay, Notes, server_name, start_server
from mcp_toolserver.pipeline.registry import Registry
from mcp_toolserver.policy.rules import Policy, Rule
from mcp_toolserver.protocol.stdio.lines import Lines, standard_lines
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.connections import Connections
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.runtime.sandbox.layers.spec import TEMPORARY
from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_RULES
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.approvals import APPROVALS
from mcp_toolserver.stores.audit_log import AuditContext, AuditLog
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.disk import MIB
from mcp_toolserver.stores.pins import NAME, Pins
from mcp_toolserver.stores.saved_outputs import OutputLimits, OutputStore
from mcp_toolserver.stores.state_dir import make_state_folder, state_folder
from mcp_toolserver.text.file_names import lies_in


class Wrapped:
    """One MCP server behind the gateway."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        found: HostExecutables,
        name: str,
        command: Sequence[str],
    ) -> None:
        name = name or server_name(command)
        if not NAME.fullmatch(name):
            raise SettingsError(f"--name: {name!r} must have 1 to 64 of A-Z a-z 0-9 _ . -, and no __")
        self._settings, self._broker, self._name, self._command = settings, broker, name, command
        state = make_state_folder(state_folder(settings.state_dir))
        self._roots = wanted_roots(settings)
        back_up_histories(broker, settings, found.git, self._roots)
        proof = broker.proof
        layers = tuple(filter(None, (proof.commands, "seccomp" if proof.filtered else "")))
        is_confined = settings.permission_mode is not Permission.DANGER_FULL_ACCESS
        context = AuditContext(
            mode=settings.permission_mode.flag,
            layers={Capability.PROCESS: layers if is_confined else ()},
            values=settings.audit_values,
        )
        self._audit = AuditLog(state, context)
        if settings.network == "hosts":
            broker.connections = Connections(broker.report_connections(), self._audit.add)
        limits = OutputLimits(
            total=settings.output_size * MIB,
            seconds=settings.output_hours * 3600.0,
            reserve=settings.disk_reserve * MIB,
        )
        self._outputs = OutputStore(state, limits)
        self._is_confined = is_confined
        self._limits = PumpLimits(pending=settings.max_calls, ask=settings.ask_seconds)
        is_networked = not is_confined or settings.network in ("hosts", "commands")
        folder = self._chosen_folder()
        places = (*self._roots, *settings.root, os.getcwd(), os.path.expanduser("~"))
        policy, rules = policy_of(settings, broker, found)
        self._approvals = Database(state, (), name=APPROVALS)
        self._gate = Gate(
            definitions=Definitions(
                server=name,
                pins=Pins(state, name, list(command)),
                normal=normaliser(command, places, datetime.now(UTC)),
            ),
            reach=Reach(settings.permission_mode, is_networked),
            policy=policy,
            rules=rules,
            approve=approvals_of(settings, self._approvals, self._roots).approve,
            roots=self._roots,
            folder=folder,
            recorder=self._audit,
            save=partial(self._outputs.save, owner=LOCAL),
            escapes=not settings.raw_output,
        )
        # A damaged file stops the start, where the operator sees it.
        self._gate.definitions.pins.load()
        try:
            # The lock on this process may not let it read the folder.
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SettingsError(f"{name} cannot be started in {error.filename}: {error.strerror}") from None

    async def run(self) -> int:
        """Serve until the client leaves, the server ends or a signal arrives; returns the exit status.

        Raises:
            SettingsError: the server cannot be started.
        """
        status, scope = 1, anyio.CancelScope()

        def end(number: int) -> None:
            nonlocal status
            status = 128 + number
            scope.cancel()

        try:
            # Before the streams are claimed: an error is said on them.
            process = await self.start()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    asyncio.get_running_loop().add_signal_handler(number, end, number)
            with scope:
                status = int(not await self.carry(process, await standard_lines(), self._limits))
        finally:
            await anyio.to_thread.run_sync(self._broker.close)
            self.close()
        return status

    def close(self) -> None:
        """Remove saved outputs and close the audit log."""
        self._outputs.close()
        self._approvals.close()
        self._audit.close()

    async def start(self) -> InteractiveProcess:
        """Start the server; once. Raises: SettingsError: it cannot be started."""
        own_home = self._is_confined and "HOME" not in self._settings.command_environment
        try:
            return await start_server(
                self._broker,
                self._command,
                name=self._name,
                cwd=self._folder,
                own_home=own_home,
                prepared=PreparedPackage(state_folder(self._settings.state_dir), self._name),
            )
        except Unavailable as error:
            raise SettingsError(f"the MCP server {self._name} cannot be started: {error}") from None

    async def carry(self, process: InteractiveProcess, lines: Lines, limits: PumpLimits) -> bool:
        """Carry messages between the started server and a client; returns whether the client left."""
        relay = ErrorRelay(self._name)
        process.on_stderr(relay.take)
        writes = self._settings.permission_mode is Permission.WORKSPACE_WRITE
        notes = Notes(self._broker, process, self._name, writes=writes)
        pump = Pump(
            process, self._gate, lines.read, lines.write, say=relay.say, verified=notes, limits=limits
        )
        return await pump.run()

    def _chosen_folder(self) -> str:
        """Where the server starts: the current folder if the server sees it, else the first root."""
        here = os.path.realpath(os.getcwd())
        if not self._is_confined or any(lies_in(root, here) for root in self._roots):
            return here
        if self._roots:
            return self._roots[0]
        return "/" if lies_in(TEMPORARY, here) else here


def policy_of(
    settings: Settings, broker: Broker, found: HostExecutables
) -> tuple[Policy, Callable[[Sequence[str]], Sequence[Rule]]]:
    """The policy of the settings, whose rules `broker` hides files by, and a parser of rules.

    Raises:
        SettingsError: a rule is wrong.
    """
    known = Registry(())
    files = (os.path.join(root, PROJECT_RULES) for root in settings.root)
    has_rules = settings.deny or settings.ask or settings.allow or settings.agent_policy
    if has_rules or any(map(os.path.lexists, files)):
        # Only rules need to know all tools.
        from mcp_toolserver.app.compose import registry

        known = registry(settings)
        settings = with_agent_policy(settings, known)
    own = build_policy(settings, known)
    policy = project_rules(settings, own, known).applied(own)
    hide_from_commands(settings, policy, broker, found.git)
    return policy, lenient_rules(known, takes_foreign=True)
