"""What commits and branches share: whether a repository may be changed, and the commands that change it.

Git writes only in the `.git` folder, with our settings and no programs. The server writes the files of the
work tree, through the same checks as those of every file tool.
"""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, Denied, Unavailable
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.hardening import GIT_FOLDER, NO_SETTINGS
from mcp_toolserver.runtime.git.repository import SECONDS, Repository, RepositoryAccess, open_repository
from mcp_toolserver.runtime.git.runner import GitResult

MAX_STATUS = 16 << 20
"""Bytes of the list of changed files."""

_UNFINISHED: Mapping[str, str] = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
}
"""What git leaves in its folder while an operation waits for the user."""


@dataclass(frozen=True, kw_only=True)
class ChangeAccess:
    repositories: RepositoryAccess
    scope: Scope
    author: str
    """The operator's `Name <email>`; empty for that of the user's configuration."""


@dataclass(frozen=True, kw_only=True)
class ChangingRepository:
    """A repository that no other call changes meanwhile."""

    repository: Repository
    access: ChangeAccess

    async def change(
        self,
        subcommand: str,
        *options: str,
        revisions: Sequence[str] = (),
        paths: Sequence[str] = (),
        stdin: bytes = b"",
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> GitResult:
        """Run a git command that changes the `.git` folder; the caller checks the status."""
        repository = self.repository
        query = GitInvocation(subcommand, options, tuple(revisions), tuple(paths), stdin)
        return await repository.access.git.change(
            repository.location, query, cwd=repository.top_fd, timeout=SECONDS, settings=settings
        )

    def check(self, answer: GitResult) -> None:
        """Raises: Conflict, Unavailable: the command failed. Git's message may quote any file, so it is not
        shown."""
        if answer.status == 0:
            return
        if os.path.lexists(f"{self.repository.location.git_dir}/index.lock"):
            raise Conflict(
                "Another git is at work in this repository, or one was killed: .git/index.lock is there. Try "
                "again; if it stays, the user can remove it once no git runs."
            )
        raise Unavailable(
            f"git could not change the repository in '{self.repository.top}' (exit status {answer.status}). "
            "A part of its .git may belong to another user or be a link to another place. Ask the user to "
            "look at it."
        )

    def forbidden(self, name: str) -> str | None:
        """Return why a rule of the operator keeps this call from the file; None if none does."""
        workspace = self.repository.access.workspace
        return self.access.scope.forbids(*workspace.spellings(self.repository.workspace_path(name)))


@asynccontextmanager
async def changing(
    access: ChangeAccess, path: CanonicalPath, *, finished: bool = True
) -> AsyncGenerator[ChangingRepository]:
    """Open the repository that contains `path`, and wait until no other call changes it.

    Raises:
        NotFound, Denied: no repository there may be changed.
        Conflict: an operation of the user, such as a merge, is not finished, unless `finished` is false.
        TimedOut, Unavailable: git took too long or did not start.
    """
    async with open_repository(access.repositories, path) as repository:
        place = repository.location
        _check_own_folder(repository)
        async with access.repositories.workspace.locks.hold(place.common_dir):
            if finished:
                _check_finished(repository)
            yield ChangingRepository(repository=repository, access=access)


def _check_finished(repository: Repository) -> None:
    """Raises: Conflict: an operation of the user waits for its end."""
    for name, operation in _UNFINISHED.items():
        if os.path.lexists(f"{repository.location.git_dir}/{name}"):
            raise Conflict(
                f"The repository in '{repository.top}' is in the middle of a {operation}. Ask the user to "
                "finish it (git status shows how) or to abort it first."
            )


def _check_own_folder(repository: Repository) -> None:
    """Raises: Denied: git would write elsewhere than in a real `.git` folder."""
    place, workspace = repository.location, repository.access.workspace
    if workspace.lies_in_read_only(place.common_dir):
        raise Denied(f"'{repository.top}' {workspace.objection(place.common_dir)}")
    link = next((one for one in (f"{place.top}/{GIT_FOLDER}", place.common_dir) if os.path.islink(one)), None)
    if link or os.path.basename(place.common_dir) != GIT_FOLDER:
        raise Denied(
            f"The data of the repository in '{repository.top}' is not in a folder called {GIT_FOLDER}: "
            f"{GIT_FOLDER} is a link, or leads elsewhere. The git tools only read such a repository. Ask the "
            "user to change it."
        )
