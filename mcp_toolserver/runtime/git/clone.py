"""Cloning, behind the walls of any command: the one use of git that writes, and may go out."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import anyio

from mcp_toolserver.capabilities.calls import Report
from mcp_toolserver.capabilities.clones import Cloned, CloneQuery
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.dialogue import Dialogue, converse
from mcp_toolserver.runtime.git_clone_script import (
    MAX_BYTES,
    ClonePlan,
    clone_failure,
    clone_script,
    cloned,
)
from mcp_toolserver.runtime.git_config import settings
from mcp_toolserver.runtime.git_program import start
from mcp_toolserver.runtime.git_repository import Reading, opened
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.text.urls import bracketed, parse_url

SECONDS = 300.0
PROGRESS_SECONDS = 5.0
_PRINTED = 64 << 10
_SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True, kw_only=True)
class Cloning:
    """Implements `capabilities.Clones`."""

    broker: Broker
    program: str
    reading: Reading
    guard: Guard | None
    """Which hosts may be cloned from; None where commands have no network."""
    most: int = MAX_BYTES
    seconds: float = SECONDS

    async def clone(self, query: CloneQuery, report: Report) -> Cloned:
        """See `Clones.clone`."""
        plan = await self._plan(query)
        files = self.reading.workspace.files(write=True)
        if not await files.make_folder(query.path):
            raise Conflict(f"'{query.path}' is there already. Clone into a folder that is new.")
        try:
            return await self._run(plan, query, report)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._remove(query.path)
            raise

    async def _plan(self, query: CloneQuery) -> ClonePlan:
        address, resolved = await (
            self._there(query.url) if query.folder is None else self._here(query.folder)
        )
        return ClonePlan(
            git=start(self.program),
            address=address,
            resolved=resolved,
            branch=query.branch,
            depth=query.depth,
            most=self.most,
        )

    async def _there(self, address: str) -> tuple[str, str]:
        """An address whose host may be spoken to, and where its name leads."""
        if self.guard is None:
            raise Unavailable(
                "A clone is a command, and commands have no network here. The operator can start the server "
                "with --network commands. A folder of the workspace can be cloned."
            )
        url = parse_url(address)
        self.guard.check(url)
        found = await self.guard.addresses(url.host, url.port)
        return address, f"{bracketed(url.host)}:{url.port}:{','.join(map(bracketed, found))}"

    async def _here(self, folder: CanonicalPath) -> tuple[str, str]:
        """The address of a repository all of which lies in the roots."""
        async with opened(self.reading, folder) as repository:
            if repository.inner != "." or repository.kind != "folder":
                raise InvalidInput(
                    f"'{folder}' is only a part of the repository in '{repository.top}'; clone that."
                )
            for name, _ in settings(repository.where.listing):
                if name == "extensions.partialclone" or name.endswith(".promisor"):
                    raise Denied(f"'{repository.top}' is a partial clone, and is not cloned.")
            return f"file://{quote(repository.where.top)}", ""

    async def _run(self, plan: ClonePlan, query: CloneQuery, report: Report) -> Cloned:
        source = query.url or f"'{query.folder}'"
        running = await self._start((*_SHELL, clone_script(plan)), query.path)
        try:
            output = await self._heard(running, source, report)
            ended = await running.wait()
        finally:
            await running.end()
        if ended.reason == "unwalled":
            raise SandboxUnavailable(ended.detail)
        if ended.status != 0:
            raise clone_failure(ended.status, running.complaints(), source, plan)
        return cloned(output, ended.notes)

    async def _heard(self, running: Dialogue, source: str, report: Report) -> str:
        """All that it prints, which is little."""
        printed = bytearray()

        async def tell() -> None:
            while True:
                await report(f"cloning {source}")
                await anyio.sleep(PROGRESS_SECONDS)

        with anyio.move_on_after(self.seconds) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tell)
                while data := await running.hear():
                    printed += data[: _PRINTED - len(printed)]
                tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise TimedOut(f"{source} was not cloned within {self.seconds:g} s. Try with `depth` 1.")
        return printed.decode("utf-8", "replace")

    async def _remove(self, path: CanonicalPath) -> None:
        """What a clone has left: by a command, which can do no more than made it."""
        parent, _, name = path.rpartition("/")
        above = CanonicalPath(parent or ("/" if path.startswith("/") else "."))
        running = await self._start(("rm", "-rf", "--", name), above)
        try:
            with anyio.move_on_after(SECONDS):
                await running.wait()
        finally:
            await running.end()

    async def _start(self, argv: Sequence[str], path: CanonicalPath) -> Dialogue:
        folder = self.reading.workspace.folder(path)
        try:
            return await converse(self.broker, argv, cwd=folder)
        finally:
            os.close(folder)
