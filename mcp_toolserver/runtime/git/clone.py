"""Clones repositories in the command sandbox: the only use of git that writes or uses the network."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import anyio

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.git import Cloned, CloneQuery
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from mcp_toolserver.runtime.git.clone_script import (
    MAX_BYTES,
    ClonePlan,
    clone_failure,
    clone_script,
    parse_clone_output,
)
from mcp_toolserver.runtime.git.executable import argv_prefix
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import RepositoryAccess, open_repository
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.text.web.urls import bracketed, parse_url

SECONDS = 300.0
PROGRESS_SECONDS = 5.0
_OUTPUT_BYTES = 64 << 10
_SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True, kw_only=True)
class GitCloner:
    """Cloning. Nothing that the repository names is run, and nothing is left of a clone that failed."""

    broker: Broker
    program: str
    access: RepositoryAccess
    guard: Guard | None
    """Decides which hosts git may connect to; None where commands have no network."""
    most: int = MAX_BYTES
    seconds: float = SECONDS

    async def clone(self, query: CloneQuery, report: Report) -> Cloned:
        """Clone a repository into a new folder.

        Raises:
            Conflict: there is something at the path.
            NotFound: there is no such repository, or no such branch.
            Denied: the host is not public, or the path is not for writing.
            InvalidInput: the repository is too large.
            TimedOut, Unavailable: it took too long, or cannot be done here.
        """
        plan = await self._plan(query)
        files = ConfinedFiles(self.access.workspace, may_write=True)
        if not await files.make_folder(query.path):
            raise Conflict(f"'{query.path}' already exists. Choose a new folder.")
        try:
            return await self._run(plan, query, report)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._remove(query.path)
            raise

    async def _plan(self, query: CloneQuery) -> ClonePlan:
        address, resolved = await (
            self._remote_source(query.url) if query.folder is None else self._local_source(query.folder)
        )
        return ClonePlan(
            git=argv_prefix(self.program),
            address=address,
            resolved=resolved,
            branch=query.branch,
            depth=query.depth,
            most=self.most,
        )

    async def _remote_source(self, address: str) -> tuple[str, str]:
        """Check a remote address and resolve its host, so that git connects to the checked addresses only."""
        if self.guard is None:
            raise Unavailable(
                "A clone is a command, and commands have no network here. The operator can start the server "
                "with --network commands. A folder of the workspace can be cloned."
            )
        url = parse_url(address)
        self.guard.check(url)
        found = await self.guard.addresses(url.host, url.port)
        return address, f"{bracketed(url.host)}:{url.port}:{','.join(map(bracketed, found))}"

    async def _local_source(self, folder: CanonicalPath) -> tuple[str, str]:
        """Return the file URL of a repository that lies completely inside the roots."""
        async with open_repository(self.access, folder) as repository:
            if repository.relative != "." or repository.kind != "folder":
                raise InvalidInput(
                    f"'{folder}' is only part of the repository in '{repository.top}'; clone that one."
                )
            for name, _ in parse_config(repository.location.config):
                if name == "extensions.partialclone" or name.endswith(".promisor"):
                    raise Denied(f"'{repository.top}' is a partial clone, which cannot be cloned.")
            return f"file://{quote(repository.location.top)}", ""

    async def _run(self, plan: ClonePlan, query: CloneQuery, report: Report) -> Cloned:
        source = query.url or f"'{query.folder}'"
        running = await self._start((*_SHELL, clone_script(plan)), query.path)
        try:
            output = await self._read_output(running, source, report)
            ended = await running.wait()
        finally:
            await running.end()
        if ended.reason == "sandbox_failed":
            raise SandboxUnavailable(ended.detail)
        if ended.status != 0:
            raise clone_failure(ended.status, running.stderr(), source, plan)
        return parse_clone_output(output, ended.notes)

    async def _read_output(self, running: InteractiveProcess, source: str, report: Report) -> str:
        """Read the output and report progress until the process closes it."""
        printed = bytearray()

        async def report_progress() -> None:
            while True:
                await report(f"cloning {source}")
                await anyio.sleep(PROGRESS_SECONDS)

        with anyio.move_on_after(self.seconds) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(report_progress)
                while data := await running.read():
                    printed += data[: _OUTPUT_BYTES - len(printed)]
                tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise TimedOut(f"Cloning {source} took longer than {self.seconds:g} s. Try with `depth` 1.")
        return printed.decode("utf-8", "replace")

    async def _remove(self, path: CanonicalPath) -> None:
        """Remove an incomplete clone with a sandboxed command, which can remove no more than the clone could
        create."""
        parent, _, name = path.rpartition("/")
        above = CanonicalPath(parent or ("/" if path.startswith("/") else "."))
        running = await self._start(("rm", "-rf", "--", name), above)
        try:
            with anyio.move_on_after(SECONDS):
                await running.wait()
        finally:
            await running.end()

    async def _start(self, argv: Sequence[str], path: CanonicalPath) -> InteractiveProcess:
        workspace = self.access.workspace
        folder = workspace.hold_dir(path)
        try:
            return await start_interactive(
                self.broker, argv, cwd=folder, roots=workspace.roots, read_only=workspace.is_read_only
            )
        finally:
            os.close(folder)
