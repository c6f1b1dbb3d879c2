"""Runs each command in a new container, which is removed afterwards.

Creating and starting are separate steps: if creating fails, nothing of the command has run, so it may safely
run on this machine instead.
"""

import asyncio
import contextlib
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from mcp_toolserver.capabilities.call_scope import Report, Scope
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.processes import Command, Contained
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.containers.engine import Engine
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.commands import CommandContext, Commands, Folders
from mcp_toolserver.runtime.processes.interactive import start_interactive
from mcp_toolserver.text.shell.words import program

CREATE_SECONDS = 30.0
"""Timeout for creating a container."""
REMOVE_SECONDS = 20.0
MAX_STDERR = 500
"""Bytes of an engine's error output that are shown."""


class Containers:
    """All containers of the server. With `failover`, a command runs on this machine if no container can be
    created."""

    def __init__(
        self,
        broker: Broker,
        commands: Commands,
        engine: Engine,
        *,
        failover: bool,
        create_timeout: float = CREATE_SECONDS,
    ) -> None:
        self._broker = broker
        self._commands = commands
        self._engine = engine
        self._failover = failover
        self._create_timeout = create_timeout
        self._live: set[str] = set()
        """Names of containers that may have to be removed."""
        self._removing: set[asyncio.Task[None]] = set()

    def for_call(self, folders: Folders, roots: Sequence[str], scope: Scope) -> "CallContainers":
        """Return the capability of one call; the first of `roots`, which is the first of `folders`, is
        mounted."""
        target = ContainerContext(
            folders=folders, owner=scope.owner, seconds_to_answer=scope.seconds_to_answer, roots=roots
        )
        return CallContainers(self, target)

    async def run_in(
        self, target: "ContainerContext", script: str, timeout: float, report: Report
    ) -> Contained:
        """See `CallContainers.run`."""
        name = f"mcp-toolserver-{secrets.token_hex(16)}"
        # Register first: the call may be cancelled while the container is being created.
        self._live.add(name)
        try:
            trouble = await self._create(target, name, script, timeout)
            if not trouble:
                start = _command(program(self._engine.start(name)), timeout)
                ended = partial(self._remove_soon, name)
                return Contained(state=await self._commands.run_in(target, start, report, ended=ended))
        except BaseException:
            self._remove_soon(name)
            raise
        self._remove_soon(name)
        if not self._failover:
            raise Unavailable(
                f"No container could be started, and nothing was run. {trouble} If the image is missing, the "
                f"operator of this server can get it with: {self._engine.pull}"
            )
        state = await self._commands.run_in(target, _command(script, timeout), report)
        return Contained(state=state, on_host=trouble)

    @property
    def has_any(self) -> bool:
        """Whether a container remains to be removed."""
        return bool(self._live or self._removing)

    async def aclose(self) -> None:
        """Remove every container."""
        for name in tuple(self._live):
            self._remove_soon(name)
        while self._removing:
            await asyncio.gather(*self._removing)

    async def _create(self, target: "ContainerContext", name: str, script: str, timeout: float) -> str:
        """Create a container; return the engine's error as a sentence, or an empty string."""
        cwd = target.folders.hold_dir(CanonicalPath("."))
        try:
            argv = self._engine.create(name, target.roots[0], script, math.ceil(timeout))
            status, stderr = await self._run_engine(argv, cwd, self._create_timeout)
        finally:
            os.close(cwd)
        if status == 0:
            return ""
        how = "did not answer in time" if status is None else f"failed with exit status {status}"
        return f"{self._engine.name} {how}{f': {stderr}' if stderr else ''}."

    def _remove_soon(self, name: str) -> None:
        removing = asyncio.get_running_loop().create_task(self._remove(name))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)

    async def _remove(self, name: str) -> None:
        if name not in self._live:
            return
        self._live.discard(name)
        root_fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # A container that has ended is already removed, which the engine reports as an error.
            with contextlib.suppress(Unavailable):
                await self._run_engine(self._engine.remove(name), root_fd, REMOVE_SECONDS)
        finally:
            os.close(root_fd)

    async def _run_engine(self, argv: Sequence[str], cwd: int, seconds: float) -> tuple[int | None, str]:
        """Run an engine command; return its exit status, None on timeout, and its error output."""
        process = await start_interactive(self._broker, argv, cwd=cwd)
        status = None
        try:
            with anyio.move_on_after(seconds):
                while await process.read():
                    pass
                status = (await process.wait()).status
        finally:
            await process.end()
        return status, process.stderr()[-MAX_STDERR:].decode(errors="replace").strip()


@dataclass(frozen=True, kw_only=True)
class ContainerContext(CommandContext):
    """Where a command in a container runs."""

    roots: Sequence[str]
    """Absolute; the first is mounted."""
    is_elsewhere: bool = True


@dataclass(frozen=True)
class CallContainers:
    """Runs commands in containers. Each gets a new container, which is removed afterwards."""

    containers: Containers
    target: ContainerContext

    async def run(self, script: str, timeout: float, report: Report) -> Contained:
        """Run to the end, or hand over to the background, as `CallCommands.run` does; `timeout` is in
        seconds.

        Raises:
            Unavailable: no container could be started, and nothing was run.
        """
        return await self.containers.run_in(self.target, script, timeout, report)


def _command(script: str, timeout: float) -> Command:
    return Command(script=script, cwd=CanonicalPath("."), timeout=timeout)
