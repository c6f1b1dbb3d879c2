"""Opens a repository for one call, if it lies completely inside the roots.

Both the work tree and the git folder, which holds everything ever committed, must be inside. Rules of the
operator hide paths of the current work tree.
"""

import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Denied, InvalidInput, Unavailable
from mcp_toolserver.runtime.files.path_resolver import inside, parent, relative_to, showable
from mcp_toolserver.runtime.files.workspace import Kind, Workspace
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.runner import MAX_OUTPUT, Git, GitResult, RepositoryPaths
from mcp_toolserver.text.git.names import ends, plain

SECONDS = 50.0
"""Timeout of one git command. Many clients give up after 60 seconds."""

MAX_PATHS = 64 << 10
"""Characters of pathspecs passed to git in one call."""

NAMED = 10
"""Files that an error names."""


@dataclass(frozen=True, kw_only=True)
class RepositoryAccess:
    git: Git
    workspace: Workspace
    may_hide: bool
    """Whether a rule hides anything; if not, files need not be checked one by one."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The repository that contains a path."""

    access: RepositoryAccess
    location: RepositoryPaths
    top: CanonicalPath
    """The work tree."""
    top_fd: int
    """File descriptor of `top`."""
    relative: str
    """The path relative to `top`; `.` for the whole repository."""
    kind: Kind
    """What exists at the path."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The pathspecs for git; none means everything."""
        return () if self.relative == "." else (self.relative,)

    async def ask(
        self,
        subcommand: str,
        *options: str,
        revisions: Sequence[str] = (),
        paths: Sequence[str] = (),
        stdin: bytes = b"",
        limit: int = MAX_OUTPUT,
    ) -> GitResult:
        """Run a git command that reads; the caller checks the status."""
        query = GitInvocation(subcommand, options, tuple(revisions), tuple(paths), stdin)
        return await self.access.git.ask(self.location, query, cwd=self.top_fd, timeout=SECONDS, limit=limit)

    def workspace_path(self, name: str) -> CanonicalPath:
        return inside(self.top, name.rstrip("/"))

    def is_hidden(self, name: str) -> bool:
        return self.access.may_hide and self.access.workspace.is_hidden(self.workspace_path(name))

    def visible(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self.is_hidden(name)]

    def named(self, names: Iterable[str], most: int = NAMED) -> str:
        """Name files of the repository in an error."""
        shown = sorted(names)
        more = f" and {len(shown) - most} more" if len(shown) > most else ""
        return ", ".join(f"'{showable(self.workspace_path(name))}'" for name in shown[:most]) + more

    def name_of(self, path: CanonicalPath, how: str) -> str:
        """Return the name of a file in the repository. `how` says what to do about one elsewhere.

        Raises:
            Denied: a rule hides the file.
            InvalidInput: it is in another repository, or in none.
        """
        workspace = self.access.workspace
        # Raises if a rule hides it.
        workspace.kind(path)
        name = relative_to(self.location.top, workspace.spellings(path)[-1])
        if name is None or self.is_nested(name):
            raise InvalidInput(
                f"'{path}' is not in the repository in '{self.top}', as the first path is. {how}"
            )
        return name

    def is_nested(self, name: str) -> bool:
        """Whether the path is that of a repository inside of this one, or lies in one."""
        parts = name.rstrip("/").split("/")
        places = ("/".join(parts[: count + 1]) for count in range(len(parts)))
        return name != "." and any(os.path.lexists(f"{self.location.top}/{one}/.git") for one in places)

    async def has(self, revision: str) -> bool:
        """Whether the parsed `revision` exists."""
        return (await self.ask("rev-parse", "--verify", "--quiet", revisions=[revision])).status == 0

    async def check(self, answer: GitResult, revisions: Sequence[str] = ()) -> None:
        """Raises: InvalidInput, Unavailable: the command failed."""
        if answer.status != 0:
            raise await self.failure(answer, revisions)

    async def failure(self, answer: GitResult, revisions: Sequence[str] = ()) -> Exception:
        """Return an error in our own words: git's message may quote any file."""
        for revision in (end for given in revisions for end in ends(given)):
            if not await self.has(revision):
                return InvalidInput(
                    f"'{plain(revision)}' is no commit of the repository in '{self.top}'. git_log lists "
                    "commits, and repo_overview branches."
                )
        return Unavailable(
            f"git failed (exit status {answer.status}). Request less, or ask the user to check the "
            f"repository in '{self.top}'."
        )


@asynccontextmanager
async def open_repository(access: RepositoryAccess, path: CanonicalPath) -> AsyncGenerator[Repository]:
    """Open the repository that contains `path`, which need not exist.

    Raises:
        as `Git`, and NotFound, Denied: no repository that may be read contains it.
    """
    workspace = access.workspace
    kind = workspace.kind(path)
    folder = path
    while workspace.kind(folder) != "folder":
        folder = parent(folder)
    if workspace.root_of(folder) not in workspace.roots:
        raise Denied(f"The git tools work in the roots only, and '{path}' lies elsewhere. Use git in bash.")
    with ExitStack() as stack:

        def keep_open(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        location = await access.git.locate(cwd=keep_open(workspace.hold_dir(folder)), timeout=SECONDS)
        _check_inside(location, workspace)
        is_shared = location.common_dir in workspace.git_folders
        if (
            access.may_hide
            and not is_shared
            and workspace.is_hidden(workspace.canonical(f"{location.common_dir}/HEAD"))
        ):
            raise Denied("A rule of the operator hides this repository. Go on without git.")
        top = workspace.canonical(location.top)
        yield Repository(
            access=access,
            location=location,
            top=top,
            top_fd=keep_open(workspace.hold_dir(top)),
            relative=relative_to(location.top, workspace.spellings(path)[-1]) or ".",
            kind=kind,
        )


def _check_inside(location: RepositoryPaths, workspace: Workspace) -> None:
    """Raises: Denied: part of the repository is outside the roots."""
    if not _is_inside(location.top, workspace.roots):
        raise Denied(
            f"The repository here begins above the root of this server, in {location.top}. Its history shows "
            f"files outside the root, so it is not read. The operator can start the server with --root "
            f"{location.top}."
        )
    for place in (location.git_dir, location.common_dir):
        if not _is_inside(place, (*workspace.roots, *workspace.git_folders)):
            raise Denied(
                f"The .git of {location.top} keeps its data outside the roots of this server, in {place}, "
                "so it is not read. The operator can pass a folder that contains both as --root."
            )


def _is_inside(place: str, roots: Sequence[str]) -> bool:
    return any(relative_to(root, place) is not None for root in roots)
