"""Merges a commit into the branch that is checked out, or takes over its changes without a commit.

Git merges objects with each other, without hooks, filters and merge drivers. Then the server writes the files
that differ, as when it switches to a branch; where that is refused, nothing has changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from mcp_toolserver.errors import Conflict, InvalidInput, Unavailable
from mcp_toolserver.runtime.git.allowed_commands import pathspec_input
from mcp_toolserver.runtime.git.changing import ChangingRepository
from mcp_toolserver.runtime.git.commit import author_of, author_settings, changes
from mcp_toolserver.runtime.git.switch import Head, Move, head_of, perform, plan
from mcp_toolserver.runtime.git.versions import filters, refuse_filtered
from mcp_toolserver.runtime.search.display_path import showable
from mcp_toolserver.text.git.names import Author

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
    return await _commit(at, answer.stdout.decode("ascii").strip(), (head,), "Changes", _NOBODY)


async def _distance(at: ChangingRepository, ours: str, theirs: str) -> tuple[int, int]:
    """How many commits `theirs` has that `ours` has not, and the other way round."""
    answer = await at.repository.ask("rev-list", "--left-right", "--count", revisions=[f"{theirs}...{ours}"])
    await at.repository.check(answer)
    missing, ahead = answer.stdout.decode("ascii").split()
    return int(missing), int(ahead)


async def _merged_tree(at: ChangingRepository, head: Head, theirs: str, source: str) -> str:
    """The tree of a three-way merge. Raises: Conflict."""
    answer = await at.change("merge-tree", revisions=[head.commit, theirs])
    if answer.status == _USAGE_ERROR:
        raise Unavailable(
            f"{head.name} has commits that {source} has not, which takes git 2.38 to merge. Ask the user to "
            "merge."
        )
    tree, *names = answer.stdout.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
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
    return answer.stdout.decode("ascii").strip()
