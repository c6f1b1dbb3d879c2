"""Runs git on an untrusted repository, so that it starts none of the repository's programs, and changes
nothing unless it is asked to.

The first query takes three commands: find the repository, list its configuration, and run the query with
every configured program disabled. Later queries take one, while the cached result of the first two is valid
(`repository_cache`).
"""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from mcp_toolserver.errors import Denied, NotFound, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation, build_argv, build_changing_argv
from mcp_toolserver.runtime.git.executable import argv_prefix
from mcp_toolserver.runtime.git.hardening import NO_SETTINGS, environment
from mcp_toolserver.runtime.git.repository_cache import (
    RACY_WINDOW_NS,
    RepositoryCache,
    RepositoryPaths,
    take_snapshot,
    unchanged_since,
)
from mcp_toolserver.runtime.processes.helper_launcher import Running
from mcp_toolserver.runtime.sandbox.broker.messages import Program

MAX_OUTPUT = 4 << 20
"""Bytes of output that are kept."""

MAX_LISTING = 1 << 20
"""Bytes of configuration. A truncated one could hide settings, so larger ones are refused."""

_WHERE = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel")
_LIST = ("config", "--list", "--includes", "-z")
_LIST_WITH_SCOPES = (*_LIST, "--show-scope")


@dataclass(frozen=True, kw_only=True)
class GitResult:
    """The result of one git command."""

    status: int
    stdout: bytes
    stderr: bytes
    """Git's messages. They may quote any file that the repository names, so a model must not see them."""
    truncated: bool
    """Whether `stdout` was cut; `status` is then meaningless."""


class ProgramLauncher(Protocol):
    """Starts programs; see `Programs.start`."""

    def start(
        self, program: Program, *, cwd: int, stdin: int | None = None
    ) -> AbstractAsyncContextManager[Running]: ...


class Git:
    """Runs the git executable at `program`, with `home` as the folder of the user's configuration.

    Files changed within the last `racy_window_ns` nanoseconds are not cached.
    """

    def __init__(
        self, starter: ProgramLauncher, program: str, home: str, *, racy_window_ns: int = RACY_WINDOW_NS
    ) -> None:
        self._starter = starter
        self._argv_prefix = argv_prefix(program)
        self._home = home
        self._racy_window_ns = racy_window_ns
        self._cache = RepositoryCache()

    async def locate(self, *, cwd: int, timeout: float) -> RepositoryPaths:
        """Return the repository that contains the folder with descriptor `cwd`.

        Raises:
            NotFound: git finds no repository that it would read, or the folder was removed.
            Denied: the repository redirects git elsewhere.
            TimedOut, Unavailable: git took too long or did not start.
        """
        try:
            folder = descriptor_path(cwd)
        except OSError as error:
            raise NotFound(
                f"This folder has no path any more ({error.strerror or error}). Ask about one that exists."
            ) from None
        if (known := self._cache.get(folder)) is not None:
            return known
        before_ns = time.time_ns() - self._racy_window_ns
        run = self._run(cwd, timeout, self._argv_prefix)
        git_dir, common_dir, top = _parse_paths(await run.ask(_WHERE, environment(), MAX_LISTING))
        found = RepositoryPaths(git_dir=git_dir, common_dir=common_dir, top=top, config=b"")
        before = take_snapshot(folder, found, self._home)
        found = await self.configured(found, cwd=cwd, timeout=timeout)
        if unchanged_since(before, before_ns) and take_snapshot(folder, found, self._home) == before:
            self._cache.keep(folder, found, before)
        return found

    async def configured(self, found: RepositoryPaths, *, cwd: int, timeout: float) -> RepositoryPaths:
        """Return `found` with its configuration.

        Raises:
            Denied: git cannot read it.
            TimedOut, Unavailable: as for `locate`.
        """
        run = self._run(cwd, timeout, (*self._argv_prefix, *found.pinned))
        config = await run.ask(_LIST, environment(), MAX_LISTING)
        if config.status != 0 or config.truncated:
            raise Denied(
                "The configuration of this repository cannot be read, so git is not run in it. Ask the user "
                "to look at its .git/config and what that includes."
            )
        return replace(found, config=config.stdout)

    async def ask(
        self,
        location: RepositoryPaths,
        query: GitInvocation,
        *,
        cwd: int,
        timeout: float,
        limit: int = MAX_OUTPUT,
    ) -> GitResult:
        """Run a command on the repository `location` in the folder with descriptor `cwd`, for at most
        `timeout` seconds and `limit` bytes.

        Raises:
            InvalidInput: the command could do more than read.
            Denied: the configuration moves the work tree, or names too many programs.
            TimedOut, Unavailable: as for `locate`.
        """
        run = self._run(cwd, timeout, (*self._argv_prefix, *location.pinned))
        return await run.ask(build_argv(query), environment(location.config), limit, stdin=query.stdin)

    async def change(
        self,
        location: RepositoryPaths,
        query: GitInvocation,
        *,
        cwd: int,
        timeout: float,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> GitResult:
        """Run a command that changes the `.git` folder of the repository `location`, with more `settings`.

        Raises:
            InvalidInput: the command could do more than that.
            Denied, TimedOut, Unavailable: as for `ask`.
        """
        run = self._run(cwd, timeout, (*self._argv_prefix, *location.pinned))
        variables = environment(location.config, settings)
        words = build_changing_argv(query)
        return await run.ask(words, variables, stdin=query.stdin, writes=(location.common_dir,))

    async def user_settings(
        self, location: RepositoryPaths, *, cwd: int, timeout: float
    ) -> Mapping[str, str]:
        """Return the settings of the user, without those of the repository `location`.

        Raises:
            Denied, TimedOut, Unavailable: as for `ask`.
        """
        run = self._run(cwd, timeout, (*self._argv_prefix, *location.pinned))
        listed = await run.ask(_LIST_WITH_SCOPES, environment(location.config), MAX_LISTING)
        if listed.status != 0 or listed.truncated:
            raise Denied("The user's git configuration cannot be read. Ask the user to look at ~/.gitconfig.")
        parts = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
        items = (
            item.partition("\n")
            for scope, item in zip(parts[::2], parts[1::2], strict=False)
            if scope == "global"
        )
        return {name: value for name, _, value in items}

    def _run(self, cwd: int, timeout: float, argv_prefix: tuple[str, ...]) -> "_Run":
        return _Run(
            starter=self._starter, argv_prefix=argv_prefix, cwd=cwd, deadline=time.monotonic() + timeout
        )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The commands of one query, which share a deadline."""

    starter: ProgramLauncher
    argv_prefix: tuple[str, ...]
    cwd: int
    deadline: float

    async def ask(
        self,
        words: Sequence[str],
        variables: Sequence[tuple[str, str]],
        limit: int = MAX_OUTPUT,
        *,
        stdin: bytes = b"",
        writes: tuple[str, ...] = (),
    ) -> GitResult:
        """Run git until it exits or has printed more than `limit` bytes."""
        left = max(self.deadline - time.monotonic(), 0.0)
        program = Program(
            argv=(*self.argv_prefix, *words), timeout=left, environment=tuple(variables), writes=writes
        )
        with _as_file(stdin) as file:
            return await self._finish(self.starter.start(program, cwd=self.cwd, stdin=file), limit)

    async def _finish(self, opening: AbstractAsyncContextManager[Running], limit: int) -> GitResult:
        output = bytearray()
        async with opening as running:
            async for chunk in running.chunks():
                output += chunk
                if len(output) > limit:
                    return _answer(0, output[:limit], running, truncated=True)
            ended = await running.wait()
            if ended.reason == "timed out":
                raise TimedOut("git took too long. Request less: fewer commits, or one path.")
            if ended.reason == "sandbox_failed":
                raise SandboxUnavailable(ended.detail)
            if ended.reason != "exited" or ended.status is None:
                raise Unavailable("git was stopped. Try again.")
            return _answer(ended.status, output, running, truncated=False)


@contextmanager
def _as_file(content: bytes) -> Generator[int | None]:
    """An anonymous file with `content`, open for reading; None for an empty one."""
    if not content:
        yield None
        return
    with os.fdopen(anonymous_file("input"), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _answer(status: int, output: bytearray, running: Running, *, truncated: bool) -> GitResult:
    return GitResult(status=status, stdout=bytes(output), stderr=running.stderr(), truncated=truncated)


def _parse_paths(answer: GitResult) -> tuple[str, str, str]:
    """Return the git folder, the common folder and the work tree.

    Raises:
        NotFound, Denied: git would read no repository here, or a different one than it appears.
    """
    if answer.status != 0:
        raise NotFound(
            "There is no git repository here that git would read. It needs a .git of its own here or in a "
            "folder above, and must belong to the user that runs this server; git refuses others, and bare "
            "repositories inside a workspace, because their configuration can run programs."
        )
    lines = os.fsdecode(answer.stdout).removesuffix("\n").split("\n")
    match lines:
        case [git_dir, common_dir, top] if _is_consistent(git_dir, common_dir):
            return git_dir, common_dir, top
        case _:
            raise Denied(
                "The .git folder here takes its configuration from another folder (a file named commondir in "
                "it says so), so git is not run in it. Ask the user to look at that file."
            )


def _is_consistent(git_dir: str, common_dir: str) -> bool:
    """Whether `common_dir` is plausible: the git folder itself, or the main repository of a linked work "
    "tree."""
    worktrees, _, _ = git_dir.rpartition("/")
    return git_dir == common_dir or worktrees == f"{common_dir}/worktrees"
