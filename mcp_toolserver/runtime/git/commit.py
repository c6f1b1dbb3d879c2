"""Changes repositories: commits files of the work tree, and merges a commit into the checked-out branch.

`git add` and `git commit --only` read the files themselves, so line ends are stored as always. They get the
names of files, never of folders: what a rule hides, and what appears meanwhile, is not committed.

For a merge, git merges objects with each other, without hooks, filters and merge drivers. Then the server
writes the files that differ, as when it switches to a branch; where that is refused, nothing has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio

from mcp_toolserver.capabilities.git import BranchChange, BranchQuery, CommitQuery, Committed, GitChange
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, Unavailable
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.git.allowed_commands import pathspec_input
from mcp_toolserver.runtime.git.changing import MAX_STATUS, ChangeAccess, ChangingRepository, changing
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import MAX_PATHS
from mcp_toolserver.runtime.git.switch import Head, Move, change_branch, head_of, perform, plan
from mcp_toolserver.runtime.git.versions import filters, refuse_filtered
from mcp_toolserver.text.git.messages import counted
from mcp_toolserver.text.git.names import Author, parse_author
from mcp_toolserver.text.git.status import is_unmerged, parsed

_TRUE = frozenset({"true", "yes", "on", "1", ""})


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The changed files to commit."""

    names: tuple[str, ...]
    left_out: int
    nested: int


class GitWriter(ChangeAccess):
    """Changing git repositories inside the roots. No program of a repository or user runs, and the network is
    not used.

    All methods raise what those of `GitReader` raise, and `Conflict` where the state of the repository
    or of its files is in the way.
    """

    async def commit(self, query: CommitQuery) -> Committed:
        anchor = query.paths[0] if query.paths else self.repositories.workspace.canonical(".")
        async with changing(self, anchor) as at:
            author = author_of(at)
            if query.amend:
                await _check_amendable(at, author)
            chosen = await _choose(at, query)
            await refuse_filtered(at.repository, await filters(at.repository, chosen.names))
            # Once git writes, it is not interrupted: it would leave its locks.
            with anyio.CancelScope(shield=True):
                await _write(at, query, chosen.names, author)
            return await _report(at, author, chosen)

    async def branch(self, query: BranchQuery) -> BranchChange:
        """Create a branch, or switch to one, or both.

        A switch writes the files that differ, all of them or none, and only where tools may write. It loses
        no uncommitted change.
        """
        return await change_branch(self, query)


def author_of(at: ChangingRepository) -> Author:
    """Return the operator's author, or else the one that git commits as in the repository.

    Raises:
        InvalidInput: there is neither.
    """
    given = at.access.author
    if not given:
        settings = dict(parse_config(at.repository.location.config))
        given = f"{settings.get('user.name', '')} <{settings.get('user.email', '')}>"
    try:
        return parse_author(given)
    except ValueError:
        raise InvalidInput(
            "There is no author for a commit. The user can set one: git config --global user.name NAME, and "
            "git config --global user.email ADDRESS; or the operator can start the server with "
            "--git-author 'NAME <ADDRESS>'."
        ) from None


async def _check_amendable(at: ChangingRepository, author: Author) -> None:
    """Raises: InvalidInput, Denied: the last commit is not the author's own, or was pushed."""
    repository = at.repository
    answer = await repository.ask("log", "--max-count=1", "--format=%H%x00%an <%ae>")
    if answer.status != 0:
        raise InvalidInput("There is no commit to amend yet. Leave out `amend`.")
    id_, _, owner = answer.stdout.decode("utf-8", "replace").strip("\n").partition("\0")
    if owner != str(author):
        raise Denied(
            f"The last commit, {id_[:12]}, is not by {author}, who commits here, so it is not amended. "
            "Make a new commit."
        )
    pushed = await repository.ask(
        "for-each-ref", "--count=1", f"--contains={id_}", "--format=%(refname)", revisions=["refs/remotes"]
    )
    if pushed.status != 0 or pushed.stdout:
        raise Denied(f"The last commit, {id_[:12]}, was pushed, so it is not amended. Make a new commit.")


async def _choose(at: ChangingRepository, query: CommitQuery) -> _Chosen:
    """Return the changed files in the paths of `query`.

    Raises:
        InvalidInput: a path has nothing to commit, or is in another repository.
        Denied: a rule hides a path.
        Conflict: a file has conflicts.
    """
    canonical = map(at.repository.access.workspace.canonical, query.paths)
    asked = [at.repository.name_of(path, "Commit to one repository at a time.") for path in canonical]
    if not asked:
        return _Chosen(names=(), left_out=0, nested=0)
    found = await changes(at, [] if "." in asked else asked)
    own = [change.path for change in found if not at.repository.is_nested(change.path)]
    names = tuple(name for name in own if not at.repository.is_hidden(name) and not at.forbidden(name))
    for path, name in zip(query.paths, asked, strict=True):
        if not any(_is_within(name, one) for one in names):
            raise InvalidInput(_nothing(path, left_out=len(own) - len(names)))
    return _Chosen(names=names, left_out=len(own) - len(names), nested=len(found) - len(own))


def _nothing(path: str, *, left_out: int) -> str:
    hint = f" {counted(left_out, 'changed file')} left out by a rule of the operator." if left_out else ""
    return (
        f"'{path}' has nothing to commit: it is unchanged, missing or ignored by .gitignore.{hint} "
        "git_status lists what changed."
    )


async def changes(at: ChangingRepository, paths: Sequence[str]) -> tuple[GitChange, ...]:
    if sum(map(len, paths)) > MAX_PATHS:
        raise InvalidInput("The `paths` are too many. Name folders, or make several commits.")
    options = ("--porcelain=v2", "--untracked-files=all", "--no-renames", "-z")
    answer = await at.repository.ask("status", *options, paths=paths, limit=MAX_STATUS)
    await at.repository.check(answer)
    if answer.truncated:
        raise InvalidInput("Too many files changed. Commit folder by folder: name some of them as `paths`.")
    changes = parsed(answer.stdout).changes
    if unmerged := [change.path for change in changes if is_unmerged(change)]:
        raise Conflict(
            f"{at.repository.named(unmerged)}: not merged. Ask the user to resolve the conflicts first."
        )
    return changes


def _is_within(folder: str, name: str) -> bool:
    return folder in (".", name) or name.startswith(f"{folder}/")


async def _write(at: ChangingRepository, query: CommitQuery, names: Sequence[str], author: Author) -> None:
    stdin = pathspec_input(names)
    if names:
        at.check(await at.change("add", stdin=stdin))
    message = f"--message={query.message}" if query.message else "--no-edit"
    options = ("--amend", message) if query.amend else (message,)
    at.check(await at.change("commit", *options, stdin=stdin, settings=author_settings(author)))


def author_settings(author: Author) -> Mapping[str, str]:
    """Return the settings that name the author, and that take precedence over all of the repository."""
    who = {"name": author.name, "email": author.email}
    sections = ("user", "author", "committer")
    return {
        **{f"{section}.{part}": value for section in sections for part, value in who.items()},
        "i18n.commitEncoding": "UTF-8",
    }


async def _report(at: ChangingRepository, author: Author, chosen: _Chosen) -> Committed:
    repository = at.repository
    shown = await repository.ask(
        "show", "--format=%H%x00%s", "--name-status", "--no-renames", "--first-parent", "-z",
        revisions=["HEAD"],
    )  # fmt: skip
    if shown.status != 0:
        raise Unavailable("The commit was made, but git could not show it. git_log lists it.")
    id_, subject, *rest = shown.fields
    files = [(letter.strip(), name) for letter, name in zip(rest[::2], rest[1::2], strict=False)]
    head = await repository.ask("rev-parse", "--symbolic-full-name", revisions=["HEAD"])
    branch = head.stdout.decode("utf-8", "replace").strip().removeprefix("refs/heads/")
    return Committed(
        id=id_,
        branch="" if branch == "HEAD" else branch,
        author=str(author),
        subject=showable(subject),
        files=tuple(
            (letter, showable(repository.workspace_path(name)))
            for letter, name in files
            if not repository.is_hidden(name)
        ),
        left_out=chosen.left_out,
        nested=chosen.nested,
        # Our own setting, the last of them, turns it off.
        unsigned=any(
            name == "commit.gpgsign" and value.lower() in _TRUE
            for name, value in parse_config(repository.location.config)
        ),
    )


MAX_CONFLICT = 4_000
"""Bytes of the conflicts that an error shows."""

_USAGE_ERROR = 129

_NOBODY = Author(name="mcp-toolserver", email="mcp-toolserver@localhost")
"""The author of a commit that no branch has."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    into: str
    """The branch that is checked out."""
    commits: int
    """Those that it did not have."""
    commit: str = ""
    """What it is at now; empty if nothing was committed."""
    files: tuple[tuple[str, str], ...] = ()
    """Those that were written, each with A, D or M."""


async def merge(at: ChangingRepository, theirs: str, source: str, *, applies: bool) -> Merged:
    """Merge the commit `theirs` of the branch `source`; `applies` writes the files only.

    Raises:
        Conflict: no branch is checked out, both sides changed the same lines, which the error shows, or
            something that is not committed would be overwritten.
        Denied, InvalidInput: as `plan`, or there is no author.
    """
    head = await head_of(at)
    if not head.name:
        raise Conflict(f"No branch is checked out in '{at.repository.top}'. Switch to one with git_branch.")
    missing, ahead = await _distance(at, head.commit, theirs)
    if not missing:
        return Merged(into=head.name, commits=0)
    tree = await _merged_tree(at, head, theirs, source) if ahead else theirs
    files = await plan(at, head.commit, tree, "The merge")
    target = theirs
    if applies:
        target = ""
    elif ahead:
        parents, message = (head.commit, theirs), f"Merge branch '{source}' into {head.name}"
        target = await _commit(at, tree, parents, message, author_of(at))
    with anyio.CancelScope(shield=True):
        await perform(at, Move(head=head, name=head.name, target=target, files=files))
    written = tuple((one.letter, showable(one.path)) for one in files)
    return Merged(into=head.name, commits=missing, commit=target, files=written)


async def commit_of_changes(at: ChangingRepository, head: str) -> str:
    """A commit on top of `head`, of no branch, with all that is not committed; stages it.

    Raises:
        InvalidInput: a filter applies to a file.
        Conflict: something is not merged.
    """
    names = [change.path for change in await changes(at, ())]
    await refuse_filtered(at.repository, await filters(at.repository, names))
    with anyio.CancelScope(shield=True):
        at.check(await at.change("add", stdin=pathspec_input(names)))
    answer = await at.change("write-tree")
    at.check(answer)
    return await _commit(at, answer.text.strip(), (head,), "Changes", _NOBODY)


async def _distance(at: ChangingRepository, ours: str, theirs: str) -> tuple[int, int]:
    """How many commits `theirs` has that `ours` has not, and the other way round."""
    answer = await at.repository.ask("rev-list", "--left-right", "--count", revisions=[f"{theirs}...{ours}"])
    await at.repository.check(answer)
    missing, ahead = answer.text.split()
    return int(missing), int(ahead)


async def _merged_tree(at: ChangingRepository, head: Head, theirs: str, source: str) -> str:
    """The tree of a three-way merge. Raises: Conflict."""
    answer = await at.change("merge-tree", revisions=[head.commit, theirs])
    if answer.status == _USAGE_ERROR:
        raise Unavailable(
            f"{head.name} has commits that {source} has not, which takes git 2.38 to merge. Ask the user to "
            "merge."
        )
    tree, *names = answer.text.removesuffix("\0").split("\0")
    if answer.status == 0:
        return tree
    if answer.status != 1 or not names:
        raise InvalidInput(f"git cannot merge {source} into {head.name}; they may have no common commit.")
    visible = sorted(set(at.repository.visible(names)))
    shown = ""
    if visible:
        revisions = [head.commit, tree]
        difference = await at.repository.ask("diff", revisions=revisions, paths=visible, limit=MAX_CONFLICT)
        shown = f"\n{difference.stdout.decode('utf-8', 'replace')}{'[cut]' * difference.truncated}"
    files = at.repository.named(visible) or "files that a rule hides"
    raise Conflict(
        f"{source} and {head.name} changed the same places of {files}. Nothing was changed. Merge "
        f"{head.name} into {source} in the worktree, resolve the conflicts there and commit, then try "
        f"again.{shown}"
    )


async def _commit(
    at: ChangingRepository, tree: str, parents: Sequence[str], message: str, author: Author
) -> str:
    options = (*(f"-p{parent}" for parent in parents), f"-m{message}")
    answer = await at.change("commit-tree", *options, revisions=[tree], settings=author_settings(author))
    at.check(answer)
    return answer.text.strip()
