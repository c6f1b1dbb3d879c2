"""A repository inside the roots, opened for one call.

All of it must lie inside the roots: its files, and the .git folder with all that was ever committed. What a
rule of the operator hides is recognised by its place among the files as they are now.
"""

import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Denied, InvalidInput, Unavailable
from mcp_toolserver.runtime.beneath import below
from mcp_toolserver.runtime.fs import Kind, Workspace
from mcp_toolserver.runtime.git import MAX_OUTPUT, Git, GitAnswer
from mcp_toolserver.runtime.git_known import Where
from mcp_toolserver.runtime.git_query import GitQuery
from mcp_toolserver.runtime.search_names import inside
from mcp_toolserver.text.git_revision import ends, plain

SECONDS = 50.0
"""Of one run of git. Many clients give up after 60."""

MAX_PATHS = 64 << 10
"""Characters of paths that are named to git in one call."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What every repository is opened with."""

    git: Git
    workspace: Workspace
    hiding: bool
    """Whether the operator hides anything: if not, nobody has to be asked about every single file."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The repository that a path lies in."""

    reading: Reading
    where: Where
    top: CanonicalPath
    """Where its files are."""
    held: int
    """The same, open."""
    inner: str
    """The path, from there; `.` for all of it."""
    kind: Kind
    """What lies at the path."""

    @property
    def paths(self) -> tuple[str, ...]:
        """What git is asked about: nothing stands for everything."""
        return () if self.inner == "." else (self.inner,)

    async def ask(
        self,
        subcommand: str,
        *options: str,
        revisions: Sequence[str] = (),
        paths: Sequence[str] = (),
        limit: int = MAX_OUTPUT,
    ) -> GitAnswer:
        """One question, whatever comes of it."""
        query = GitQuery(
            subcommand=subcommand, options=options, revisions=tuple(revisions), paths=tuple(paths)
        )
        return await self.reading.git.ask(self.where, query, cwd=self.held, timeout=SECONDS, limit=limit)

    def spelt(self, name: str) -> CanonicalPath:
        """A name in the repository, as other tools take it."""
        return inside(self.top, name.rstrip("/"))

    def is_hidden(self, name: str) -> bool:
        """Whether a rule of the operator hides it."""
        return self.reading.hiding and self.reading.workspace.is_hidden(self.spelt(name))

    def shown(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are not hidden."""
        return [name for name in names if not self.is_hidden(name)]

    async def has(self, revision: str) -> bool:
        """Whether `revision`, already peeled, is there."""
        return (await self.ask("rev-parse", "--verify", "--quiet", revisions=[revision])).status == 0

    async def failed(self, answer: GitAnswer, revisions: Sequence[str]) -> Exception:
        """Why git failed, in our own words: what git says may quote any file."""
        for revision in (end for given in revisions for end in ends(given)):
            if not await self.has(revision):
                return InvalidInput(
                    f"'{plain(revision)}' is no commit of the repository in '{self.top}'. git_log lists "
                    "commits, and repo_overview branches."
                )
        return Unavailable(
            f"git could not answer (exit status {answer.status}). Ask for less, or ask the user to look at "
            f"the repository in '{self.top}'."
        )


@asynccontextmanager
async def opened(reading: Reading, path: CanonicalPath) -> AsyncGenerator[Repository]:
    """The repository that `path` lies in, whether there is something at `path` or not.

    Raises:
        NotFound, Denied: there is none that may be read.
        TimedOut, Unavailable: git took too long, or cannot be started.
    """
    workspace = reading.workspace
    kind = workspace.kind(path)
    folder = path
    while workspace.kind(folder) != "folder":
        folder = _parent(folder)
    with ExitStack() as stack:

        def kept(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        where = await reading.git.locate(cwd=kept(workspace.folder(folder)), timeout=SECONDS)
        _refuse_outside(where, workspace.roots)
        if reading.hiding and workspace.is_hidden(workspace.canonical(f"{where.common}/HEAD")):
            raise Denied("A rule of the operator hides this repository. Go on without git.")
        top = workspace.canonical(where.top)
        yield Repository(
            reading=reading,
            where=where,
            top=top,
            held=kept(workspace.folder(top)),
            inner=below(where.top, workspace.spellings(path)[-1]) or ".",
            kind=kind,
        )


def _parent(path: CanonicalPath) -> CanonicalPath:
    return CanonicalPath(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))


def _refuse_outside(where: Where, roots: Sequence[str]) -> None:
    """Raises: Denied: a part of the repository is not for this server to show."""
    if not _lies_in(where.top, roots):
        raise Denied(
            f"The repository here begins above the root of this server, in {where.top}. Its history shows "
            f"files outside the root, so it is not read. The operator can start the server with --root "
            f"{where.top}."
        )
    for place in (where.own, where.common):
        if not _lies_in(place, roots):
            raise Denied(
                f"The .git of {where.top} keeps the repository outside the roots of this server, in {place}, "
                "so it is not read. The operator can start the server with the folder that holds both as "
                "--root."
            )


def _lies_in(place: str, roots: Sequence[str]) -> bool:
    return any(below(root, place) is not None for root in roots)
