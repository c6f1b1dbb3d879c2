"""Clones repositories in the command sandbox: the only use of git that uses the network.

A shell script does it, with every program disabled that a repository or user could configure. It runs in the
new folder. Its standard output matches `_CLONED`; everything else goes to standard error.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import anyio

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.git import Cloned
from mcp_toolserver.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    SandboxUnavailable,
    TimedOut,
    ToolError,
    Unavailable,
)
from mcp_toolserver.runtime.files.path_resolver import parent
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from mcp_toolserver.runtime.git.hardening import argv_prefix, environment, parse_config
from mcp_toolserver.runtime.git.repository import RepositoryAccess, open_repository
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.text.address_or_path import AddressOrPath
from mcp_toolserver.text.web.urls import bracketed, parse_url

SECONDS = 300.0
PROGRESS_SECONDS = 5.0
_OUTPUT_BYTES = 64 << 10
_SHELL = ("/bin/sh", "-c")

MIB = 1 << 20
MAX_BYTES = 1024 * MIB
"""Limit for the transfer and for the checked-out files."""

MAX_FILES = 200_000

_TOO_LARGE = 71
_POSIX_BLOCK = 512

_VARIABLES: Mapping[str, str] = {
    # Ignore the user's .netrc and URL rewriting.
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "LC_ALL": "C",
}

_SETTINGS: Mapping[str, str] = {
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "http.followRedirects": "false",
    "http.proxy": "",
    "http.sslVerify": "true",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    "advice.detachedHead": "false",
}

_CLONED = re.compile(r"(?P<commit>[0-9a-f]+)\n(?P<files>\d+) (?P<size>\d+)\n(?P<branch>.*)\n")


@dataclass(frozen=True, kw_only=True)
class ClonePlan:
    git: tuple[str, ...]
    """The first arguments of every git command."""
    address: str
    """`https://…` or `file://…`."""
    resolved: str = ""
    """`host:port:address,address`: the only addresses git may connect to."""
    branch: str = ""
    depth: int = 0
    most: int = MAX_BYTES


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

    async def clone(
        self, source: AddressOrPath, path: CanonicalPath, branch: str, depth: int, report: Report
    ) -> Cloned:
        """Clone `source`, an https URL or a repository in the workspace, into the new folder at `path`.

        An empty `branch` is the default branch of the repository; `depth` counts the newest commits to fetch,
        0 for all.

        Raises:
            Conflict: there is something at the path.
            NotFound: there is no such repository, or no such branch.
            Denied: the host is not public, or the path is not for writing.
            InvalidInput: the repository is too large.
            TimedOut, Unavailable: it took too long, or cannot be done here.
        """
        address, resolved = await (
            self._remote_source(source.address)
            if source.address
            else self._local_source(CanonicalPath(source.path))
        )
        plan = ClonePlan(
            git=argv_prefix(self.program),
            address=address,
            resolved=resolved,
            branch=branch,
            depth=depth,
            most=self.most,
        )
        files = ConfinedFiles(self.access.workspace, may_write=True)
        if not await files.make_folder(path):
            raise Conflict(f"'{path}' already exists. Choose a new folder.")
        try:
            return await self._run(plan, source.address or f"'{source.path}'", path, report)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._remove(path)
            raise

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

    async def _run(self, plan: ClonePlan, source: str, path: CanonicalPath, report: Report) -> Cloned:
        running = await self._start((*_SHELL, _script(plan)), path)
        try:
            output = await self._read_output(running, source, report)
            ended = await running.wait()
        finally:
            await running.end()
        if ended.reason == "sandbox_failed":
            raise SandboxUnavailable(ended.detail)
        if ended.status != 0:
            raise clone_failure(ended.status, running.stderr(), source, plan)
        return _parse_output(output, ended.notes)

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
        running = await self._start(("rm", "-rf", "--", os.path.basename(path)), parent(path))
        try:
            with anyio.move_on_after(SECONDS):
                await running.wait()
        finally:
            await running.end()

    async def _start(self, argv: Sequence[str], path: CanonicalPath) -> InteractiveProcess:
        workspace = self.access.workspace
        cwd, read_only = workspace.hold_dir(path), workspace.is_read_only
        return await start_interactive(self.broker, argv, cwd=cwd, roots=workspace.roots, read_only=read_only)


# --- the script -------------------------------------------------------------------------------------------


def _script(plan: ClonePlan) -> str:
    """Return the script for any POSIX shell."""
    git = shlex.join(plan.git)
    local = plan.address.startswith("file:")
    exports = (f"export {name}={shlex.quote(value)}" for name, value in _variables(plan).items())
    count = '{ n++; s += $4 } END { printf "%d %.0f\\n", n, s; exit '
    count += f"(s > {plan.most} || n > {MAX_FILES}) ? {_TOO_LARGE} : 0 }}"
    return "\n".join(
        (
            "set -eu",
            *exports,
            f"ulimit -f {-(-plan.most // _POSIX_BLOCK)}",
            shlex.join((*plan.git, *_clone(plan))),
            # A file path is meaningless outside this workspace.
            *((f"{git} remote remove origin",) if local else ()),
            f"{git} rev-parse --verify --quiet HEAD || exit 0",
            # Check before checkout: a small pack can expand to a huge tree.
            f"{git} ls-tree -r -l HEAD | awk {shlex.quote(count)}",
            f"{git} symbolic-ref --quiet --short HEAD || echo",
            f"{git} reset --quiet --hard",
        )
    )


def _parse_output(output: str, notes: tuple[str, ...]) -> Cloned:
    found = _CLONED.fullmatch(output)
    if found is None:
        return Cloned(notes=notes)
    return Cloned(
        commit=found["commit"],
        branch=found["branch"],
        files=int(found["files"]),
        size=int(found["size"]),
        notes=notes,
    )


def clone_failure(status: int | None, complaints: bytes, source: str, plan: ClonePlan) -> ToolError:
    """Return an error in our own words: git's message may contain text from another host."""
    said = complaints.decode("utf-8", "replace")
    if status == _TOO_LARGE or "signal 25" in said or "File too large" in said:
        return InvalidInput(
            f"{source} is larger than {plan.most // MIB} MiB or {MAX_FILES:,} files, so it was not cloned. "
            "Set `depth` to fetch less."
        )
    if "Remote branch" in said:
        return NotFound(
            f"{source} has no branch or tag {plan.branch!r}. Omit `branch` to use the default one."
        )
    if "returned error: 30" in said:
        return Unavailable(
            f"{source} redirects to another address, which git does not follow. Use the final address."
        )
    if re.search(r"not found|could not read Username|Authentication failed|returned error: 40", said):
        return NotFound(f"There is no repository at {source} that may be read without a password.")
    return Unavailable(f"git could not clone {source} (exit status {status}).")


def _variables(plan: ClonePlan) -> dict[str, str]:
    scheme = plan.address.partition(":")[0]
    settings = {**_SETTINGS, f"protocol.{scheme}.allow": "always"}
    if plan.resolved:
        settings["http.curloptResolve"] = plan.resolved
    # Remote helper processes for local clones inherit variables but not settings.
    return {**_VARIABLES, "GIT_ALLOW_PROTOCOL": scheme, **dict(environment(own=settings))}


def _clone(plan: ClonePlan) -> tuple[str, ...]:
    options = ["--quiet", "--no-checkout", "--template=", "--no-recurse-submodules", "--no-hardlinks"]
    options += [f"--branch={plan.branch}"] * bool(plan.branch) + [f"--depth={plan.depth}"] * bool(plan.depth)
    return "clone", *options, "--no-local", "--", plan.address, "."
