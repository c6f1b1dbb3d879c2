"""Creates branches and switches to them.

Git only compares and moves its index and HEAD. The server writes the files that differ, through the checks of
every file tool: in a link's place, outside the roots, or under a protected name, nothing is written.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio

from mcp_toolserver.capabilities.files import CanonicalPath, Contents, FileChange
from mcp_toolserver.capabilities.git import BranchChange, BranchQuery
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from mcp_toolserver.runtime.git.changing import MAX_STATUS, ChangeAccess, ChangingRepository, changing
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import Repository
from mcp_toolserver.runtime.git.versions import EXECUTABLE, TreeEntry, contents, peeled_commit
from mcp_toolserver.runtime.sandbox.protected.names import GIT, protected_name
from mcp_toolserver.text.file_names import check_spelling
from mcp_toolserver.text.git.status import parsed

MAX_FILES = 2_000
"""Files that a switch writes."""

_AT_ONCE = 200
"""Files that are replaced together; each takes two open files."""

_NOTHING = "0" * 6
"""The mode of a file that is not there."""

REF = "refs/heads/"

_HIDDEN = "The branches differ in files that a rule of the operator hides."


@dataclass(frozen=True, kw_only=True)
class _Difference:
    path: str
    before: TreeEntry
    after: TreeEntry

    @property
    def letter(self) -> str:
        if self.before.mode == _NOTHING:
            return "A"
        return "D" if self.after.mode == _NOTHING else "M"


@dataclass(frozen=True, kw_only=True)
class FileSwitch:
    """What a switch makes of a file."""

    path: CanonicalPath
    letter: str
    before: bytes | None
    after: bytes | None
    was_executable: bool
    is_executable: bool

    @property
    def change(self) -> FileChange:
        return FileChange(path=self.path, content=self.after, executable=self.is_executable)

    @property
    def reversed(self) -> "FileSwitch":
        """The change that takes this one back."""
        return replace(
            self,
            before=self.after,
            after=self.before,
            was_executable=self.is_executable,
            is_executable=self.was_executable,
        )


async def change_branch(access: ChangeAccess, query: BranchQuery) -> BranchChange:
    """See `GitWriter.branch`."""
    start = peeled_commit(query.start) if query.start else "HEAD^{commit}"
    async with changing(access, query.path) as at:
        exists = await _check_name(at, query)
        head = await head_of(at)
        target = await commit_id(
            at, f"{REF}{query.name}^{{commit}}" if exists else start, query.start or "HEAD"
        )
        if not query.switch:
            await _create(at, query.name, target)
            return BranchChange(
                name=query.name, commit=target, created=True, switched=False, before=head.name
            )
        if head.name == query.name:
            return BranchChange(
                name=query.name, commit=target, created=False, switched=False, before=head.name
            )
        files = [] if head.commit == target else await plan(at, head.commit, target, "Switching")
        move = Move(head=head, name=query.name, target=target, create=not exists, files=files)
        # Once something is written, all of it is, or what was written is taken back.
        with anyio.CancelScope(shield=True):
            await perform(at, move)
        return BranchChange(
            name=query.name,
            commit=target,
            created=not exists,
            switched=True,
            before=head.name or head.commit,
            files=tuple((one.letter, showable(one.path)) for one in files),
        )


@dataclass(frozen=True, kw_only=True)
class Head:
    name: str
    """The branch; empty if none is checked out."""
    commit: str


@dataclass(frozen=True, kw_only=True)
class Move:
    """A switch or merge that may be done."""

    head: Head
    name: str
    """The branch to check out; that of `head` moves to `target`."""
    target: str
    """A commit; empty if only files are written."""
    create: bool = False
    files: Sequence[FileSwitch]


async def _check_name(at: ChangingRepository, query: BranchQuery) -> bool:
    """Return whether the branch exists.

    Raises:
        Conflict: it exists and is to be created, or another work tree has it checked out.
        NotFound: it does not exist and is not to be created.
    """
    answer = await at.repository.ask(
        "for-each-ref", "--format=%(refname)%00%(worktreepath)", revisions=[f"{REF}{query.name}"]
    )
    lines = answer.text.split("\n")
    found = {ref: place for ref, _, place in (line.partition("\0") for line in lines)}
    place = found.get(f"{REF}{query.name}")
    if place is None and not query.create:
        raise NotFound(
            f"There is no local branch '{query.name}'. git_branch without `name` lists branches; with "
            "`create` it makes one, and `start` names the commit it starts from, such as origin/main."
        )
    if place is not None and query.create:
        raise Conflict(f"The branch '{query.name}' exists already. Leave out `create` to switch to it.")
    if place and place != at.repository.location.top and query.switch:
        raise Conflict(f"The branch '{query.name}' is checked out in another work tree. Choose another.")
    return place is not None


async def head_of(at: ChangingRepository) -> Head:
    answer = await at.repository.ask("rev-parse", "--symbolic-full-name", revisions=["HEAD"])
    name = answer.text.strip()
    commit = await commit_id(at, "HEAD^{commit}", "HEAD")
    return Head(name=name.removeprefix(REF) if name.startswith(REF) else "", commit=commit)


async def commit_id(at: ChangingRepository, revision: str, shown: str) -> str:
    """Return the id of the commit `revision`, which errors call `shown`.

    Raises:
        InvalidInput: there is none.
    """
    answer = await at.repository.ask("rev-parse", "--verify", "--quiet", revisions=[revision])
    if answer.status != 0:
        raise InvalidInput(
            f"'{shown}' is no commit of the repository in '{at.repository.top}'. git_log lists commits; "
            "where there are none, make the first with git_commit."
        )
    return answer.text.strip()


async def _create(at: ChangingRepository, name: str, target: str) -> None:
    answer = await at.change("branch", revisions=[name, target])
    if answer.status != 0:
        raise InvalidInput(
            f"git made no branch '{name}' (exit status {answer.status}): it is no valid name, or part of the "
            "name of another branch. Choose another name, such as fix/login."
        )


# --- what a switch changes -------------------------------------------------------------------------------


async def plan(at: ChangingRepository, head: str, target: str, act: str) -> list[FileSwitch]:
    """Return the files to write to get from the commit `head` to `target`, all of which may be written and
    have no uncommitted changes. `act` is the subject of a sentence.

    Raises:
        Denied: some may not be written; the error lists them.
        Conflict: uncommitted changes or untracked files would be overwritten; likewise.
        InvalidInput: too much differs, or something that the server does not write.
    """
    repository = at.repository
    if is_sparse(repository):
        raise InvalidInput(
            "This is a sparse checkout, whose files the git tools do not write. Ask the user to do it."
        )
    differences = await _differences(repository, head, target)
    if not differences:
        return []
    _check_kinds(at, differences)
    _check_places(at, differences)
    await _check_uncommitted(at, differences, act)
    found = await _files(repository, differences)
    await _check_untracked(at, found, act)
    return found


def is_sparse(repository: Repository) -> bool:
    """Whether the configuration leaves files of a commit out of the work tree."""
    return dict(parse_config(repository.location.config)).get("core.sparsecheckout", "false") != "false"


async def _differences(repository: Repository, head: str, target: str) -> list[_Difference]:
    options = ("--raw", "--no-abbrev", "--no-renames", "-z")
    answer = await repository.ask("diff", *options, revisions=[head, target])
    await repository.check(answer)
    fields = iter(answer.fields)
    found = [_difference(words, path) for words, path in zip(fields, fields, strict=False)]
    if answer.truncated or len(found) > MAX_FILES:
        raise InvalidInput(
            f"More than {MAX_FILES:,} files differ, which is too many here. Ask the user to do it."
        )
    return found


def _difference(words: str, path: str) -> _Difference:
    old_mode, new_mode, old_id, new_id, _ = words.removeprefix(":").split(" ")
    return _Difference(
        path=path,
        before=TreeEntry(path=path, mode=old_mode, id=old_id),
        after=TreeEntry(path=path, mode=new_mode, id=new_id),
    )


def _check_kinds(at: ChangingRepository, differences: Sequence[_Difference]) -> None:
    """Raises: InvalidInput: something differs that the server does not write."""
    names = [one.path for one in differences]
    odd = [
        one.path
        for one in differences
        if any(not side.is_file and side.mode != _NOTHING for side in (one.before, one.after))
    ]
    if odd:
        raise InvalidInput(
            f"{at.repository.named(odd)}: a symbolic link or a submodule on one of the branches. Only "
            "regular files are written here. Ask the user to do it."
        )
    folders = {name[:end] for name in names for end, letter in enumerate(name) if letter == "/"}
    if both := folders.intersection(names):
        raise InvalidInput(
            f"{at.repository.named(both)}: a file on one branch and a folder on the other. Ask the user "
            "to do it."
        )
    filters = any(name.startswith("filter.") for name, _ in parse_config(at.repository.location.config))
    if filters and any(name.rpartition("/")[2] == ".gitattributes" for name in names):
        raise InvalidInput(
            "The branches differ in .gitattributes, and the git configuration has filters, which do not run "
            "here. Ask the user to do it."
        )


def _check_places(at: ChangingRepository, differences: Sequence[_Difference]) -> None:
    """Raises: Denied: some of the files may not be written, of which it names those that are not hidden."""
    refused: dict[str, list[str]] = {}
    for one in differences:
        if why := _obstacle(at, one.path) or at.forbidden(one.path):
            refused.setdefault(why, []).append(one.path)
    if not refused:
        return
    lines = [why if why == _HIDDEN else f"{at.repository.named(refused[why])}: {why}" for why in refused]
    raise Denied(" ".join((*lines, "Nothing was changed. Ask the user to do it.")))


def _obstacle(at: ChangingRepository, name: str) -> str:
    """Return why the server must not write the file, as a sentence about it; empty if it may."""
    workspace, path = at.repository.access.workspace, f"{at.repository.location.top}/{name}"
    parts = name.split("/")
    if any(part in ("", ".", "..") or protected_name(part) == GIT for part in parts):
        return "a name that git does not check out either."
    if not is_spelt(name):
        return "a name with control characters or invalid UTF-8."
    if at.repository.is_hidden(name):
        return _HIDDEN
    if workspace.is_protected(path):
        return "it is protected, so no tool changes it: programs act upon it unasked."
    if workspace.canonical(path) != at.repository.workspace_path(name):
        return "it, or a folder on its path, is a link in the work tree."
    return ""


def is_spelt(name: str) -> bool:
    """Whether the path can be one of the workspace."""
    try:
        check_spelling(name)
    except ValueError:
        return False
    return True


async def _check_uncommitted(at: ChangingRepository, differences: Sequence[_Difference], act: str) -> None:
    """Raises: Conflict: a file that differs has uncommitted changes."""
    # Unlike `diff`, this compares the contents of files that were only touched.
    options = ("--porcelain=v2", "--untracked-files=no", "--no-renames", "-z")
    answer = await at.repository.ask("status", *options, limit=MAX_STATUS)
    if answer.status != 0 or answer.truncated:
        raise await at.repository.failure(answer)
    changed = {change.path for change in parsed(answer.stdout).changes}
    if both := changed.intersection(one.path for one in differences):
        raise Conflict(
            f"{act} would overwrite uncommitted changes of {at.repository.named(both)}. Nothing was "
            "changed. Commit them with git_commit first, or drop them with git_restore."
        )


async def _files(repository: Repository, differences: Sequence[_Difference]) -> list[FileSwitch]:
    sides = [[one.before for one in differences], [one.after for one in differences]]
    before, after = [
        await contents(repository, [side for side in entries if side.mode != _NOTHING]) for entries in sides
    ]
    return [
        FileSwitch(
            path=repository.workspace_path(one.path),
            letter=one.letter,
            before=before.get(one.path),
            after=after.get(one.path),
            was_executable=one.before.mode == EXECUTABLE,
            is_executable=one.after.mode == EXECUTABLE,
        )
        for one in differences
    ]


async def _check_untracked(at: ChangingRepository, found: Sequence[FileSwitch], act: str) -> None:
    """Raises: Conflict: a file that is to be created is there already."""
    workspace = at.repository.access.workspace
    there = [one.path for one in found if one.before is None and workspace.kind(one.path) != "missing"]
    if there:
        shown = ", ".join(f"'{showable(path)}'" for path in there[:10])
        raise Conflict(
            f"{act} would overwrite untracked files: {shown}. Nothing was changed. Move or commit them first."
        )


# --- the switch itself -----------------------------------------------------------------------------------


async def perform(at: ChangingRepository, move: Move) -> None:
    """Write the files, the index and HEAD or the branch, or none of them."""
    parts = [move.files[start : start + _AT_ONCE] for start in range(0, len(move.files), _AT_ONCE)]
    done: list[Sequence[FileSwitch]] = []
    try:
        for part in parts:
            await _put(at, part)
            done.append(part)
        if move.target:
            await _move_head(at, move)
    except ToolError as error:
        for part in reversed(done):
            await _take_back(at, [one.reversed for one in part], error)
        raise
    _remove_empty_folders(at, move.files)
    if move.target:
        # Only makes the next status faster.
        await at.change("update-index", "--refresh")


def _remove_empty_folders(at: ChangingRepository, files: Sequence[FileSwitch]) -> None:
    """Remove the folders that a switch has emptied, as git does."""
    workspace, top = at.repository.access.workspace, at.repository.location.top
    for one in files:
        path = workspace.spellings(one.path)[-1] if one.after is None else top
        while (path := os.path.dirname(path)) != top and path.startswith(f"{top}/"):
            try:
                above = workspace.open_inside(os.path.dirname(path))
                assert above is not None
                try:
                    os.rmdir(os.path.basename(path), dir_fd=above)
                finally:
                    os.close(above)
            except OSError:
                # It is not empty, or no longer there.
                break


async def _move_head(at: ChangingRepository, move: Move) -> None:
    """Create the branch, move the index and check the branch out or move it, or none of that."""
    undo: list[Callable[[], Awaitable[object]]] = []
    try:
        if move.head.commit != move.target:
            at.check(await at.change("read-tree", revisions=[move.head.commit, move.target]))
            undo.append(partial(at.change, "read-tree", revisions=[move.target, move.head.commit]))
        if move.create:
            await _create(at, move.name, move.target)
            undo.append(partial(at.change, "update-ref", "-d", revisions=[f"{REF}{move.name}", move.target]))
        branch = f"{REF}{move.name}"
        if move.name == move.head.name:
            moved = [branch, move.target, move.head.commit]
            at.check(await at.change("update-ref", "-mmerge of a worktree", revisions=moved))
        else:
            reason = f"-mcheckout: moving from {move.head.name or move.head.commit} to {move.name}"
            at.check(await at.change("symbolic-ref", reason, revisions=["HEAD", branch]))
    except ToolError:
        for step in reversed(undo):
            await step()
        raise


async def _put(at: ChangingRepository, part: Sequence[FileSwitch]) -> None:
    by_path: Mapping[str, FileSwitch] = {one.path: one for one in part}

    def change(now: Contents) -> Sequence[FileChange]:
        if others := [path for path, content in now.items() if content != by_path[path].before]:
            shown = ", ".join(f"'{showable(path)}'" for path in others[:10])
            raise Conflict(f"Somebody changed {shown} meanwhile. Nothing was changed. Try again.")
        return [one.change for one in part]

    files = ConfinedFiles(at.repository.access.workspace, may_write=True)
    await files.update_all([one.path for one in part], change)


async def _take_back(at: ChangingRepository, part: Sequence[FileSwitch], error: ToolError) -> None:
    try:
        await _put(at, part)
    except ToolError as other:
        raise Conflict(
            f"{error} The files could not all be put back: {other} The branch is still the old one; git_diff "
            "shows what differs."
        ) from None
