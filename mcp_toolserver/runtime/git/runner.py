"""git, asked about a repository that nobody vouches for: it runs none of its programs and changes nothing.

The first question takes three runs. One finds out which repository it is, the second lists its configuration,
and only the third, with every program in that list switched off, does what was asked. Later questions take
one, as long as nothing has changed that the first two depend on (`git_known`).
"""

import os
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.errors import Denied, NotFound, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime.git_config import environment
from mcp_toolserver.runtime.git_known import SETTLED, Known, Where, seen, settled
from mcp_toolserver.runtime.git_program import start
from mcp_toolserver.runtime.git_query import GitQuery, arguments
from mcp_toolserver.runtime.launch import Running

MAX_OUTPUT = 4 << 20
"""Bytes of an answer that are kept."""

MAX_LISTING = 1 << 20
"""Bytes of a configuration. One cut short could hide what it names, so it is refused."""

_WHERE = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel")
_LIST = ("config", "--list", "--includes", "-z")


@dataclass(frozen=True, kw_only=True)
class GitAnswer:
    """What git said."""

    status: int
    stdout: bytes
    stderr: bytes
    """Git's own words. They may quote any file that the repository names, so they are not for a model."""
    truncated: bool
    """Whether `stdout` is only the beginning; `status` then means nothing."""


class Starter(Protocol):
    """Starts programs with variables of their own; see `Launcher.open`."""

    def open(
        self,
        argv: Sequence[str],
        *,
        cwd: int,
        timeout: float,
        environment: Sequence[tuple[str, str]],
    ) -> AbstractAsyncContextManager[Running]: ...


class Git:
    """Runs the git at the absolute path `program`; `home` is where it finds the user's configuration.

    What has changed within `settled` nanoseconds is not relied upon later.
    """

    def __init__(self, starter: Starter, program: str, home: str, *, settled: int = SETTLED) -> None:
        self._starter = starter
        self._start = start(program)
        self._home = home
        self._settled = settled
        self._known = Known()

    async def locate(self, *, cwd: int, timeout: float) -> Where:
        """The repository that the folder open as `cwd` lies in.

        Raises:
            NotFound: there is no repository that git would read.
            Denied: the repository is set up to lead git astray.
            TimedOut, Unavailable: git took too long, or cannot be started.
        """
        folder = os.readlink(f"/proc/self/fd/{cwd}")
        if (known := self._known.get(folder)) is not None:
            return known
        settled_by = time.time_ns() - self._settled
        run = self._run(cwd, timeout, self._start)
        own, common, top = _place(await run.ask(_WHERE, environment(), MAX_LISTING))
        found = Where(own=own, common=common, top=top, listing=b"")
        before = seen(folder, found, self._home)
        run = self._run(cwd, timeout, (*self._start, *found.pinned))
        listing = await run.ask(_LIST, environment(), MAX_LISTING)
        if listing.status != 0 or listing.truncated:
            raise Denied(
                "The configuration of this repository cannot be read, so git is not run in it. Ask the user "
                "to look at its .git/config and what that includes."
            )
        found = Where(own=own, common=common, top=top, listing=listing.stdout)
        if settled(before, settled_by) and seen(folder, found, self._home) == before:
            self._known.keep(folder, found, before)
        return found

    async def ask(
        self, where: Where, query: GitQuery, *, cwd: int, timeout: float, limit: int = MAX_OUTPUT
    ) -> GitAnswer:
        """Ask the repository `where` in the folder open as `cwd`, for at most `timeout` s and `limit` bytes.

        Raises:
            InvalidInput: the question could do more than read.
            Denied: the configuration of the repository moves its files, or is built to overwhelm.
            TimedOut, Unavailable: as for `locate`.
        """
        run = self._run(cwd, timeout, (*self._start, *where.pinned))
        return await run.ask(arguments(query), environment(where.listing), limit)

    def _run(self, cwd: int, timeout: float, start: tuple[str, ...]) -> "_Run":
        return _Run(starter=self._starter, start=start, cwd=cwd, deadline=time.monotonic() + timeout)


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The runs of one question."""

    starter: Starter
    start: tuple[str, ...]
    cwd: int
    deadline: float

    async def ask(self, words: Sequence[str], variables: Sequence[tuple[str, str]], limit: int) -> GitAnswer:
        """Run git to its end, or until it has said more than `limit` bytes."""
        left = max(self.deadline - time.monotonic(), 0.0)
        output = bytearray()
        opening = self.starter.open((*self.start, *words), cwd=self.cwd, timeout=left, environment=variables)
        async with opening as running:
            async for chunk in running.chunks():
                output += chunk
                if len(output) > limit:
                    return _answer(0, output[:limit], running, truncated=True)
            ended = await running.wait()
            if ended.reason == "timed out":
                raise TimedOut("git took too long. Ask for less: fewer commits, or one path.")
            if ended.reason == "unwalled":
                raise SandboxUnavailable(ended.detail)
            if ended.reason != "exited" or ended.status is None:
                raise Unavailable("git was stopped. Try again.")
            return _answer(ended.status, output, running, truncated=False)


def _answer(status: int, output: bytearray, running: Running, *, truncated: bool) -> GitAnswer:
    return GitAnswer(status=status, stdout=bytes(output), stderr=running.complaints(), truncated=truncated)


def _place(answer: GitAnswer) -> tuple[str, str, str]:
    """The folder of the repository, that of what it shares, and that of its files.

    Raises:
        NotFound, Denied: git would read no repository here, or another one than it seems.
    """
    if answer.status != 0:
        raise NotFound(
            "There is no git repository here that git would read. It needs a .git of its own here or in a "
            "folder above, and must belong to the user that runs this server; git refuses others, and bare "
            "repositories inside a workspace, because their configuration can run programs."
        )
    lines = os.fsdecode(answer.stdout).removesuffix("\n").split("\n")
    match lines:
        case [own, common, top] if _belong_together(own, common):
            return own, common, top
        case _:
            raise Denied(
                "The .git folder here takes its configuration from another folder (a file named commondir in "
                "it says so), so git is not run in it. Ask the user to look at that file."
            )


def _belong_together(own: str, common: str) -> bool:
    """Whether a repository that says it is a part of `common` is one: a linked work tree lies inside."""
    worktrees, _, _ = own.rpartition("/")
    return own == common or worktrees == f"{common}/worktrees"
