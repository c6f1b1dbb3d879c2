"""Runs git on an untrusted repository, so that it starts none of the repository's programs, and changes
nothing unless it is asked to.

The first query takes three commands: find the repository, list its configuration, and run the query with
every configured program disabled. Later queries take one, while the cached result of the first two is valid:
it depends on a few files, which must be unchanged. Configurations with includes are not cached, because they
can depend on any file.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from mcp_toolserver.errors import Denied, NotFound, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime.anonymous_file import opened_content
from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation, build_argv
from mcp_toolserver.runtime.git.hardening import NO_SETTINGS, argv_prefix, environment, parse_config
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.sandbox.broker.messages import Program

MAX_OUTPUT = 4 << 20
"""Bytes of output that are kept."""

MAX_LISTING = 1 << 20
"""Bytes of configuration. A truncated one could hide settings, so larger ones are refused."""

MOST = 64
"""Largest number of cached folders."""

RACY_WINDOW_NS = 2_000_000_000
"""Files changed within this time can change again with the same timestamp ("racily clean" in git's terms)."""

_WHERE = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel")
_LIST = ("config", "--list", "--includes", "-z")
_INCLUDES = ("include.", "includeif.")


@dataclass(frozen=True, kw_only=True)
class RepositoryPaths:
    """The location and configuration of a repository."""

    git_dir: str
    """The .git folder, absolute as all paths here."""
    common_dir: str
    """The folder shared with linked work trees; equal to `git_dir` without them."""
    top: str
    """The work tree."""
    config: bytes
    """The effective configuration, as `git config --list -z` prints it."""

    @property
    def pinned(self) -> tuple[str, ...]:
        """Arguments that bind git to this repository, even if another one appears in between."""
        return f"--git-dir={self.git_dir}", f"--work-tree={self.top}"


@dataclass(frozen=True, kw_only=True)
class GitResult:
    status: int
    stdout: bytes
    stderr: bytes
    """Git's messages. They may quote any file that the repository names, so a model must not see them."""
    truncated: bool
    """Whether `stdout` was cut; `status` is then meaningless."""

    @property
    def text(self) -> str:
        """`stdout`, whose file names need not be UTF-8."""
        return self.stdout.decode("utf-8", "surrogateescape")

    @property
    def fields(self) -> list[str]:
        """The parts of `stdout` that end with a NUL; what was cut is not among them."""
        return self.text.split("\0")[:-1]


class Git:
    """Runs the git executable at `program`, with `home` as the folder of the user's configuration.

    Files changed within the last `racy_window_ns` nanoseconds are not cached. Every method raises `TimedOut`
    or `Unavailable` if git takes too long or does not start, and `Denied` if the configuration of the
    repository moves the work tree or names too many programs.
    """

    def __init__(
        self, programs: Programs, program: str, home: str, *, racy_window_ns: int = RACY_WINDOW_NS
    ) -> None:
        self._programs = programs
        self._argv_prefix = argv_prefix(program)
        self._home = home
        self._racy_window_ns = racy_window_ns
        self._cache = RepositoryCache()

    async def locate(self, *, cwd: int, timeout: float) -> RepositoryPaths:
        """Return the repository that contains the folder with descriptor `cwd`.

        Raises:
            NotFound: git finds none that it would read; Denied: it redirects git elsewhere.
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
        program = self._program(None, _WHERE, environment(), timeout)
        git_dir, common_dir, top = _parse_paths(await self._run(program, cwd=cwd, limit=MAX_LISTING))
        found = RepositoryPaths(git_dir=git_dir, common_dir=common_dir, top=top, config=b"")
        before = take_snapshot(folder, found, self._home)
        found = await self.configured(found, cwd=cwd, timeout=timeout)
        is_old = all(state is None or state[-1] < before_ns for state in before.values())
        if is_old and take_snapshot(folder, found, self._home) == before:
            self._cache.keep(folder, found, before)
        return found

    async def configured(self, found: RepositoryPaths, *, cwd: int, timeout: float) -> RepositoryPaths:
        """Return `found` with its configuration. Raises: Denied: git cannot read it."""
        program = self._program(found, _LIST, environment(), timeout)
        config = await self._run(program, cwd=cwd, limit=MAX_LISTING)
        if config.status != 0 or config.truncated:
            raise Denied(
                "The configuration of this repository cannot be read, so git is not run in it. Ask the user "
                "to look at its .git/config and what that includes."
            )
        return replace(found, config=config.stdout)

    async def ask(  # noqa: PLR0913  where it runs, what, and its bounds
        self,
        location: RepositoryPaths,
        query: GitInvocation,
        *,
        cwd: int,
        timeout: float,
        limit: int = MAX_OUTPUT,
        take: Callable[[bytes], object] | None = None,
    ) -> GitResult:
        """Run a command that only reads the repository `location`, in the folder with descriptor `cwd`, for
        at most `timeout` seconds and `limit` bytes; `take` gets its output in place of the result."""
        program = self._program(location, build_argv(query), environment(location.config), timeout)
        return await self._run(program, cwd=cwd, limit=limit, stdin=query.stdin, take=take)

    async def change(
        self,
        location: RepositoryPaths,
        query: GitInvocation,
        *,
        cwd: int,
        timeout: float,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> GitResult:
        """Run a command that changes the `.git` folder of the repository `location`, with more `settings`."""
        words, variables = build_argv(query, changing=True), environment(location.config, settings)
        program = replace(self._program(location, words, variables, timeout), writes=(location.common_dir,))
        return await self._run(program, cwd=cwd, limit=MAX_OUTPUT, stdin=query.stdin)

    def _program(
        self,
        location: RepositoryPaths | None,
        words: Sequence[str],
        variables: Sequence[tuple[str, str]],
        timeout: float,
    ) -> Program:
        argv = (*self._argv_prefix, *(location.pinned if location else ()), *words)
        return Program(argv=argv, timeout=timeout, environment=tuple(variables))

    async def _run(
        self,
        program: Program,
        *,
        cwd: int,
        limit: int,
        stdin: bytes = b"",
        take: Callable[[bytes], object] | None = None,
    ) -> GitResult:
        """Run git until it exits or has printed more than `limit` bytes."""
        output, size = bytearray(), 0
        take = take or output.extend
        with opened_content("input", stdin) if stdin else nullcontext() as file:
            async with self._programs.start(program, cwd=cwd, stdin=file) as running:
                async for chunk in running.chunks():
                    take(chunk)
                    size += len(chunk)
                    if size > limit:
                        cut = bytes(output[:limit])
                        return GitResult(status=0, stdout=cut, stderr=running.stderr(), truncated=True)
                ended = await running.wait()
                stderr = running.stderr()
        if ended.reason == "timed out":
            raise TimedOut("git took too long. Request less: fewer commits, or one path.")
        if ended.reason == "sandbox_failed":
            raise SandboxUnavailable(ended.detail)
        if ended.reason != "exited" or ended.status is None:
            raise Unavailable("git was stopped. Try again.")
        return GitResult(status=ended.status, stdout=bytes(output), stderr=stderr, truncated=False)


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
    """Whether `common_dir` is the git folder itself, or that of the main repository of a linked work tree."""
    worktrees, _, _ = git_dir.rpartition("/")
    return git_dir == common_dir or worktrees == f"{common_dir}/worktrees"


# --- the cache -------------------------------------------------------------------------------------------

Snapshot = dict[str, tuple[int, ...] | None]
"""The state of each path that a cache entry depends on; None for a missing one."""


class RepositoryCache:
    """Cached repositories by folder, each with the snapshot that validates it."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[RepositoryPaths, Snapshot]] = {}

    def get(self, folder: str) -> RepositoryPaths | None:
        """Return the repository of `folder`; None if it is not cached or has changed."""
        if (entry := self._entries.get(folder)) is None:
            return None
        location, before = entry
        if all(_state(path) == state for path, state in before.items()):
            return location
        del self._entries[folder]
        return None

    def keep(self, folder: str, location: RepositoryPaths, before: Snapshot) -> None:
        """Cache a repository unless its configuration includes other files."""
        if any(name.startswith(_INCLUDES) for name, _ in parse_config(location.config)):
            return
        while len(self._entries) >= MOST:
            del self._entries[next(iter(self._entries))]
        self._entries[folder] = location, before


def take_snapshot(folder: str, location: RepositoryPaths, home: str) -> Snapshot:
    """Return the state of everything that the entry for `folder` depends on."""
    paths = [folder, f"{location.top}/.git", location.git_dir, f"{location.git_dir}/commondir"]
    # A new repository in a closer parent folder takes precedence.
    while folder not in (location.top, "/"):
        paths.append(f"{folder}/.git")
        folder = os.path.dirname(folder)
    for place in (location.git_dir, location.common_dir):
        paths += (f"{place}/config", f"{place}/config.worktree")
    return {path: _state(path) for path in (*paths, f"{home}/.gitconfig", f"{home}/.config/git/config")}


def _state(path: str) -> tuple[int, ...] | None:
    """Return the state of `path`, its last change last; None if it is missing. For a folder only its identity
    counts, since files are often created in it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    identity = (found.st_dev, found.st_ino, found.st_mode, found.st_uid)
    if stat.S_ISDIR(found.st_mode):
        return (*identity, 0)
    return (*identity, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
