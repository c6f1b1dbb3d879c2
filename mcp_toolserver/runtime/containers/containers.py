"""Commands in containers: each in a new one, which is removed when the command is gone.

A container is first made and then started, in two steps: when the first fails, nothing of the command has run
for certain, and only then may it run on this machine instead.
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

from mcp_toolserver.capabilities.calls import Report, Scope
from mcp_toolserver.capabilities.containers import Contained
from mcp_toolserver.capabilities.containers import Containers as ContainersHere
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.processes import Command
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.container_engine import Engine
from mcp_toolserver.runtime.dialogue import converse
from mcp_toolserver.runtime.processes import Commands, Folders, Place
from mcp_toolserver.text.shell import program

CREATE_SECONDS = 30.0
"""How long an engine may take to make a container."""
REMOVE_SECONDS = 20.0
SAID = 500
"""Bytes shown of what an engine says of its failure."""


class Containers:
    """All containers of the server. `failover` lets a command run on this machine when none can be had."""

    def __init__(
        self,
        broker: Broker,
        commands: Commands,
        engine: Engine,
        *,
        failover: bool,
        patience: float = CREATE_SECONDS,
    ) -> None:
        self._broker = broker
        self._commands = commands
        self._engine = engine
        self._failover = failover
        self._patience = patience
        self._live: set[str] = set()
        """Names of containers that have been made and not been removed."""
        self._removing: set[asyncio.Task[None]] = set()

    def within(self, folders: Folders, roots: Sequence[str], scope: Scope | None = None) -> ContainersHere:
        """The same containers, on the first of `roots`, which is the first of `folders`, for one call."""
        return _Within(
            self, Mounted(folders=folders, patient=scope is not None and scope.patient, roots=roots)
        )

    async def run_in(self, place: "Mounted", script: str, timeout: float, report: Report) -> Contained:
        """See `capabilities.Containers.run`."""
        name = f"mcp-toolserver-{secrets.token_hex(16)}"
        # Here from the first: a call may be cancelled while its container is being made.
        self._live.add(name)
        try:
            trouble = await self._created(place, name, script, timeout)
            if not trouble:
                start = _command(program(self._engine.start(name)), timeout)
                ended = partial(self._remove_soon, name)
                return Contained(state=await self._commands.run_in(place, start, report, ended=ended))
        except BaseException:
            self._remove_soon(name)
            raise
        self._remove_soon(name)
        if not self._failover:
            raise Unavailable(
                f"No container could be started, and nothing was run. {trouble} If the image is missing, the "
                f"operator of this server gets it with: {self._engine.pull}"
            )
        state = await self._commands.run_in(place, _command(script, timeout), report)
        return Contained(state=state, on_host=trouble)

    @property
    def has_any(self) -> bool:
        """Whether a container has to be removed still."""
        return bool(self._live or self._removing)

    async def aclose(self) -> None:
        """Remove every container."""
        for name in tuple(self._live):
            self._remove_soon(name)
        while self._removing:
            await asyncio.gather(*self._removing)

    async def _created(self, place: "Mounted", name: str, script: str, timeout: float) -> str:
        """Make a container; what the engine says when it cannot, as a sentence."""
        cwd = place.folders.folder(CanonicalPath("."))
        try:
            argv = self._engine.create(name, place.roots[0], script, math.ceil(timeout))
            status, said = await self._told(argv, cwd, self._patience)
        finally:
            os.close(cwd)
        if status == 0:
            return ""
        how = "did not answer in time" if status is None else f"failed with exit status {status}"
        return f"{self._engine.name} {how}{f': {said}' if said else ''}."

    def _remove_soon(self, name: str) -> None:
        removing = asyncio.get_running_loop().create_task(self._remove(name))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)

    async def _remove(self, name: str) -> None:
        if name not in self._live:
            return
        self._live.discard(name)
        nowhere = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # One that has ended is gone already, and the engine says so.
            with contextlib.suppress(Unavailable):
                await self._told(self._engine.remove(name), nowhere, REMOVE_SECONDS)
        finally:
            os.close(nowhere)

    async def _told(self, argv: Sequence[str], cwd: int, seconds: float) -> tuple[int | None, str]:
        """Tell the engine something: its exit status, None when it takes too long, and its complaints."""
        talk = await converse(self._broker, argv, cwd=cwd)
        status = None
        try:
            with anyio.move_on_after(seconds):
                while await talk.hear():
                    pass
                status = (await talk.wait()).status
        finally:
            await talk.end()
        return status, talk.complaints()[-SAID:].decode(errors="replace").strip()


@dataclass(frozen=True, kw_only=True)
class Mounted(Place):
    """The place of a command in a container."""

    roots: Sequence[str]
    """Absolute; the first is mounted."""


@dataclass(frozen=True)
class _Within:
    """Implements `capabilities.Containers`."""

    containers: Containers
    place: Mounted

    async def run(self, script: str, timeout: float, report: Report) -> Contained:
        return await self.containers.run_in(self.place, script, timeout, report)


def _command(script: str, timeout: float) -> Command:
    return Command(script=script, cwd=CanonicalPath("."), timeout=timeout)
