"""Runs each command in a new container, which is removed afterwards.

Creating and starting are separate steps: if creating fails, nothing of the command has run, so it may safely
run on this machine instead.
"""

import asyncio
import contextlib
import csv
import io
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import anyio

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.processes import Command, JobState
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.commands import CallCommands, Folders
from mcp_toolserver.runtime.processes.interactive import start_interactive
from mcp_toolserver.text.shell.words import program

CREATE_SECONDS = 30.0
"""Timeout for creating a container."""
REMOVE_SECONDS = 20.0
MAX_STDERR = 500
"""Bytes of an engine's error output that are shown."""

APPLE = "container"
WORKSPACE = "/workspace"

_SHELL = (
    'command -v timeout >/dev/null && exec timeout -s KILL "$1" sh -c "$2"',
    'exec sh -c "$2"',
)
"""The timeout also runs inside the container, in case the server is killed."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine and the options shared by all its containers."""

    program: str
    """Absolute."""
    image: str
    network: bool
    processes: int
    memory: int
    """Bytes."""
    user: str
    """The owner of files created in the workspace, as `uid:gid`."""

    @property
    def name(self) -> str:
        """The engine's name."""
        return os.path.basename(self.program)

    @property
    def pull(self) -> str:
        """The command that downloads the image."""
        return f"{self.name} {'image pull' if self._is_apple else 'pull'} {self.image}"

    def create(self, name: str, root: str, script: str, seconds: int) -> tuple[str, ...]:
        """Create, but not start, a container that runs `script` on the folder `root`."""
        return (
            *(self.program, "create", "--rm", "--name", name),
            *("--mount", _fields("type=bind", f"source={root}", f"target={WORKSPACE}")),
            *("--workdir", WORKSPACE, *self._sandbox_options()),
            *(self.image, "sh", "-c", "\n".join(_SHELL), "sh", str(seconds), script),
        )

    def start(self, name: str) -> tuple[str, ...]:
        """Start it, with its output and exit status as the engine's."""
        return (self.program, "start", "--attach", name)

    def remove(self, name: str) -> tuple[str, ...]:
        """Kill and remove it."""
        return (self.program, "delete" if self._is_apple else "rm", "--force", name)

    @property
    def _is_apple(self) -> bool:
        return self.name == APPLE

    def _sandbox_options(self) -> tuple[str, ...]:
        if self._is_apple:
            # Each of its containers is a virtual machine with its own limits.
            return () if self.network else ("--network", "none")
        # Rootless podman maps the user of this machine to root in the container.
        user = () if self.name == "podman" else ("--user", self.user, "--env", "HOME=/tmp")
        return (
            *(() if self.network else ("--network", "none")),
            *("--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(self.processes), "--memory", str(self.memory), *user),
        )


def _fields(*fields: str) -> str:
    """Join fields with commas, quoted as engines expect."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


@dataclass(frozen=True, eq=False)
class Containers:
    """All containers of the server. With `failover`, a command runs on this machine if no container can be
    created."""

    broker: Broker
    engine: Engine
    _: KW_ONLY
    failover: bool
    create_timeout: float = CREATE_SECONDS
    live: set[str] = field(default_factory=set[str])
    """Names of containers that may have to be removed."""
    removing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def aclose(self) -> None:
        """Remove every container."""
        for name in tuple(self.live):
            self.remove_soon(name)
        while self.removing:
            await asyncio.gather(*self.removing)

    async def create(self, folders: Folders, argv: Sequence[str]) -> str:
        """Create a container; return the engine's error as a sentence, or an empty string."""
        cwd = folders.hold_dir(CanonicalPath("."))
        status, stderr = await self._run_engine(argv, cwd, self.create_timeout)
        if status == 0:
            return ""
        how = "did not answer in time" if status is None else f"failed with exit status {status}"
        return f"{self.engine.name} {how}{f': {stderr}' if stderr else ''}."

    def remove_soon(self, name: str) -> None:
        """Remove a container, which may have ended or not exist, without waiting for it."""
        removing = asyncio.get_running_loop().create_task(self._remove(name))
        self.removing.add(removing)
        removing.add_done_callback(self.removing.discard)

    async def _remove(self, name: str) -> None:
        if name not in self.live:
            return
        self.live.discard(name)
        # A container that has ended is already removed, which the engine reports as an error.
        with contextlib.suppress(Unavailable):
            await self._run_engine(self.engine.remove(name), None, REMOVE_SECONDS)

    async def _run_engine(
        self, argv: Sequence[str], cwd: int | None, seconds: float
    ) -> tuple[int | None, str]:
        """Run an engine command; return its exit status, None on timeout, and its error output."""
        process = await start_interactive(self.broker, argv, cwd=cwd)
        status = None
        try:
            with anyio.move_on_after(seconds):
                while await process.read():
                    pass
                status = (await process.wait()).status
        finally:
            await process.end()
        return status, process.stderr()[-MAX_STDERR:].decode(errors="replace").strip()


@dataclass(frozen=True)
class CallContainers:
    """Runs commands in containers. Each gets a new container, which is removed afterwards."""

    containers: Containers
    call: CallCommands
    root: str
    """The folder to mount, absolute; empty if the call has none, and then nothing is run."""

    async def run(self, script: str, timeout: float, report: Report) -> tuple[JobState, str]:
        """Run to the end, or hand over to the background, as `CallCommands.run` does; `timeout` is in
        seconds.

        Returns why it ran on this machine instead too, if the operator allows that; empty if it did not.

        Raises:
            Unavailable: no container could be started, and nothing was run.
        """
        containers, commands = self.containers, self.call.commands
        name = f"mcp-toolserver-{secrets.token_hex(16)}"
        # Register first: the call may be cancelled while the container is being created.
        containers.live.add(name)
        try:
            create = containers.engine.create(name, self.root, script, math.ceil(timeout))
            trouble = await containers.create(self.call.folders, create)
            if not trouble:
                start = _command(program(containers.engine.start(name)), timeout)
                ended = partial(containers.remove_soon, name)
                return await commands.run_in(self.call, start, report, ended=ended), ""
        except BaseException:
            containers.remove_soon(name)
            raise
        containers.remove_soon(name)
        if not containers.failover:
            raise Unavailable(
                f"No container could be started, and nothing was run. {trouble} If the image is missing, the "
                f"operator of this server can get it with: {containers.engine.pull}"
            )
        return await commands.run_in(self.call, _command(script, timeout), report), trouble


def _command(script: str, timeout: float) -> Command:
    return Command(script=script, cwd=CanonicalPath("."), timeout=timeout)
