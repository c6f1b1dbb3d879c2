"""The worktrees of one workspace: created and removed through git, entered by sessions and agents."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.git import (
    EnteredWorktree,
    ExitedWorktree,
    MergedWorktree,
    Worktree,
)
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, ToolError
from mcp_toolserver.policy.rules import Request, Verdict
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.files.root import WORKTREES
from mcp_toolserver.runtime.files.workspace import Entered, Workspace
from mcp_toolserver.runtime.git.changing import MAX_STATUS, ChangeAccess, ChangingRepository, changing
from mcp_toolserver.runtime.git.commit import commit_of_changes, merge
from mcp_toolserver.runtime.git.hardening import GIT_FOLDER
from mcp_toolserver.runtime.git.repository import Repository, RepositoryAccess, open_repository
from mcp_toolserver.runtime.git.runner import Git
from mcp_toolserver.runtime.git.switch import REF, commit_id
from mcp_toolserver.runtime.git.versions import SUBMODULE
from mcp_toolserver.runtime.git.work_trees import (
    MAX_LISTING,
    NewWorkTree,
    WorkTreePlace,
    create_work_tree,
    is_there,
    is_work_tree,
    remove_work_tree,
)
from mcp_toolserver.stores.worktrees import StoredWorktree, StoredWorktrees, new_handle
from mcp_toolserver.text.git.messages import counted
from mcp_toolserver.text.git.names import check_worktree_name
from mcp_toolserver.text.git.status import parsed

BRANCH_PREFIX = "worktree-"

NAMED = 20
"""Files and commits that an error names."""

_WRITE_FILE = "write_file"
"""The tool whose rules decide on the files that a merge writes."""

_UNCHECKED = "what lies in its folder: the file .git in it is missing or leads elsewhere"


@dataclass(frozen=True, kw_only=True)
class WorktreeServices:
    """What all calls share."""

    git: Git
    workspace: Workspace
    """With the roots of the server."""
    may_hide: bool
    author: str
    """See `ChangeAccess`."""
    stored: StoredWorktrees
    entered: dict[str, Entered]
    """The worktree that each owner works in: the first root of all its calls."""

    def access(self, workspace: Workspace, scope: Scope) -> ChangeAccess:
        """The access of a call that sees `workspace`."""
        repositories = RepositoryAccess(git=self.git, workspace=workspace, may_hide=self.may_hide)
        return ChangeAccess(repositories=repositories, scope=scope, author=self.author)


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """What removing a worktree would lose."""

    files: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    """Those that no branch would have."""
    keeps_branch: bool = True
    """Whether the branch has commits of its own, or is in use elsewhere."""
    tip: str = ""
    """The commit of the branch; empty if it does not exist."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.files, *self.commits)


@dataclass(frozen=True, kw_only=True)
class CallWorktrees:
    """The worktrees of the caller, and those of its agents. No program of a repository or user runs, and the
    network is not used.

    All methods raise what those of `GitWriter` raise.
    """

    services: WorktreeServices
    workspace: Workspace
    """What the call sees."""
    scope: Scope
    decide: Callable[[Request], Verdict]
    """The decision of the policy on another call of the caller."""

    async def enter(self, path: CanonicalPath, name: str, base: str) -> EnteredWorktree:
        """Create a worktree of the repository of `path` with a branch from the commit `base`, which is HEAD
        if empty, or find one of the caller again, and make it the first root of the caller.

        Raises:
            Conflict: the caller is in a worktree, or the name or branch is taken.
            InvalidInput: the name or the commit cannot be used, or the limit of worktrees is reached.
        """
        owner, entered = self.scope.owner, self.services.entered
        if (now := entered.get(owner)) is not None:
            raise Conflict(
                f"This session works in the worktree {now.path} already. Leave it first, with "
                f"ExitWorktree and the id {now.id}."
            )
        found = await self._existing(path, name, base) or await self._create(path, name, base)
        entered[owner] = _entered(found.worktree)
        return found

    async def exit(self, handle: str, *, remove: bool, discard_changes: bool) -> ExitedWorktree:
        """Leave a worktree, and remove it if asked.

        Raises:
            NotFound: the caller has no such worktree.
            Conflict: it would lose work, or somebody else works in it.
        """
        owner, services = self.scope.owner, self.services
        stored = await services.stored.get(handle, owner)
        place = _place(stored)
        if (is_missing := not is_there(place)) or remove:
            self._check_unused(stored)
            found = await self._remove(stored, discard=discard_changes)
        else:
            found = ExitedWorktree(worktree=_worktree(stored), removed=False)
        self._leave(stored)
        return replace(found, was_missing=is_missing)

    async def merge(self, handle: str, *, applies: bool) -> MergedWorktree:
        """Merge what is checked out in a worktree into the branch of the main folder, or of the worktree of
        an isolated agent that calls, and leave it. `applies` writes its changes, also those that are not
        committed, and commits nothing.

        Raises:
            NotFound: the caller has no such worktree.
            Conflict: as `merge`, somebody else works in it, or it has changes that would be left behind.
            Denied: the caller may not write one of the files that differ; the error lists them.
        """
        owner, services = self.scope.owner, self.services
        stored = await services.stored.get(handle, owner)
        self._check_unused(stored)
        theirs = await self._work(stored, applies=applies)
        entered = services.entered.get(owner)
        top = entered.path if entered is not None and entered.only else os.path.dirname(stored.common_dir)
        scope = replace(self.scope, forbids=self._forbids_writing)
        async with changing(services.access(self.workspace, scope), self.workspace.canonical(top)) as at:
            if at.repository.location.common_dir != stored.common_dir:
                raise Conflict(f"The repository in {top} is not that of the worktree '{stored.name}'.")
            found = await merge(at, theirs, stored.branch, applies=applies)
        self._leave(stored)
        return MergedWorktree(worktree=_worktree(stored), place=top, **vars(found))

    async def _work(self, stored: StoredWorktree, *, applies: bool) -> str:
        """The commit that is checked out in a worktree; what is not committed comes with it, or is in the
        way."""
        place, workspace = _place(stored), self.services.workspace
        if not is_work_tree(place, stored.git_dir):
            raise Conflict(
                f"The folder {place.path} is no worktree any more. What was committed in it is on the branch "
                f"{stored.branch}."
            )
        access = self.services.access(workspace, self.scope)
        async with changing(access, workspace.canonical(place.path)) as at:
            head = await commit_id(at, "HEAD^{commit}", "HEAD")
            files = await _changed(at.repository)
            if not files:
                return head
            if not applies or (files := tuple(await _unseen(at.repository))):
                listed = "\n".join(f"- {one}" for one in files)
                how = "Commit this in it first, or use `action` apply, which commits nothing."
                raise Conflict(
                    f"Not everything in the worktree '{stored.name}' is committed:\n{listed}\n"
                    f"{'Protected files lie there in the commit, so remove this.' if applies else how}"
                )
            return await commit_of_changes(at, head)

    def _check_unused(self, stored: StoredWorktree) -> None:
        """Raises: Conflict: somebody else works in it."""
        others = (one for user, one in self.services.entered.items() if user != self.scope.owner)
        if any(one.id == stored.handle for one in others):
            raise Conflict(
                f"An agent works in the worktree '{stored.name}'. Wait until it ends, or stop it first."
            )

    def _leave(self, stored: StoredWorktree) -> None:
        now = self.services.entered.get(self.scope.owner)
        if now is not None and now.id == stored.handle:
            self.services.entered.pop(self.scope.owner)

    def _forbids_writing(self, *spellings: str) -> str | None:
        """See `Scope.forbids`; rules on writing files apply too, also those that want it approved."""
        request = Request(
            tool=_WRITE_FILE,
            level=Permission.WORKSPACE_WRITE,
            subjects=(spellings,),
            needs=frozenset({Capability.FS_WRITE}),
        )
        verdict = self.decide(request)
        is_refused = verdict.action == "refuse" or (verdict.action == "ask" and verdict.rule)
        return self.scope.forbids(*spellings) or (verdict.reason if is_refused else None)

    async def isolate(self, agent: str) -> Worktree:
        """Create a worktree from HEAD for the calls of an agent, or enter again the one that it has.

        They see nothing else of the roots; git uses the repository all the same. The worktree belongs to the
        caller, who can merge or remove it by its id once the agent has ended.

        Raises:
            ToolError: as `enter`.
        """
        stored = await self.services.stored.of_agent(agent, self.scope.owner)
        if stored is None or not await self._is_present(stored):
            worktree = (await self._create(CanonicalPath("."), agent)).worktree
        else:
            worktree = _worktree(stored)
        git_folder = worktree.path.removesuffix(f"{WORKTREES}/{agent}") + GIT_FOLDER
        self.services.entered[agent] = replace(_entered(worktree), only=True, git_folder=git_folder)
        return worktree

    async def _is_present(self, stored: StoredWorktree) -> bool:
        """Whether the worktree of an agent is there; one whose folder was deleted is pruned.

        Raises:
            Conflict: it is no worktree any more, or the caller works in another repository.
        """
        async with open_repository(self._access.repositories, CanonicalPath(".")) as repository:
            is_other = repository.location.common_dir != stored.common_dir
        place = _place(stored)
        if is_other or (stored.git_dir and is_there(place) and not is_work_tree(place, stored.git_dir)):
            raise Conflict(
                f"The agent worked in the worktree {place.path}, which is none any more, or not of the "
                "repository that you work in. Start another agent."
            )
        if stored.git_dir and not is_there(place):
            # A branch with commits stays.
            await self._remove(stored, discard=True)
        return bool(stored.git_dir) and is_there(place)

    async def end_isolation(self, agent: str, worktree: Worktree) -> str:
        """End the isolation of an agent, which must have ended with all that it started, and remove its
        worktree if that loses nothing.

        Returns:
            What the worktree holds, as the end of a sentence; empty if it was removed.
        """
        self.services.entered.pop(agent, None)
        try:
            stored = await self.services.stored.get(worktree.id, self.scope.owner)
            await self._remove(stored, discard=False)
        except NotFound:
            return ""
        except ToolError:
            # It has work, or cannot be removed: the caller can look at it.
            return await self._summary(worktree)
        return ""

    async def _summary(self, worktree: Worktree) -> str:
        """How many commits a worktree has, and the files that it changed."""
        workspace = self.services.workspace
        repositories = self.services.access(workspace, self.scope).repositories
        try:
            async with open_repository(repositories, workspace.canonical(worktree.path)) as repository:
                counting = await repository.ask("rev-list", "--count", revisions=[f"{worktree.base}..HEAD"])
                names = await repository.ask(
                    "diff", "--name-only", "--no-renames", "-z", revisions=[worktree.base]
                )
                uncommitted = await _uncommitted(repository)
                files = sorted(map(showable, repository.visible({*names.fields, *uncommitted})))
        except ToolError:
            return "which cannot be looked at"
        commits = counted(int(counting.stdout or 0), "commit")
        more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
        named = ", ".join(files[:NAMED]) or "none"
        return f"{commits}; changed files: {named}{more} ({len(uncommitted)} not committed)"

    async def _existing(self, path: CanonicalPath, name: str, base: str) -> EnteredWorktree | None:
        """Return the caller's worktree of this name, if there is one. One whose folder was deleted is pruned.

        Raises:
            Conflict: it belongs to somebody else, or is no worktree any more.
        """
        async with open_repository(self._access.repositories, path) as repository:
            common_dir = repository.location.common_dir
        stored = await self.services.stored.named(common_dir, name)
        if stored is None:
            return None
        place = _place(stored)
        if not is_there(place):
            # Nothing is left of it but its branch, which stays if it has commits.
            await self._remove(stored, discard=True)
            return None
        if stored.owner != self.scope.owner:
            raise Conflict(f"The worktree '{name}' belongs to another session. Choose another name.")
        if not is_work_tree(place, stored.git_dir):
            raise Conflict(
                f"The folder {place.path} is no worktree any more: its .git file is missing or leads "
                f"elsewhere. Choose another name, or remove it with ExitWorktree and the id {stored.handle}."
            )
        if base:
            raise InvalidInput(
                f"The worktree '{name}' exists already, on the branch {stored.branch}. Leave out "
                "`base` to enter it, or choose another name."
            )
        return EnteredWorktree(worktree=_worktree(stored), created=False)

    async def _create(self, path: CanonicalPath, name: str, base: str = "") -> EnteredWorktree:
        services = self.services
        try:
            check_worktree_name(name)
        except ValueError as error:
            raise InvalidInput(f"{name!r} cannot be used: {error}.") from None
        await services.stored.check_room()
        branch = f"{BRANCH_PREFIX}{name}"
        async with changing(self._access, path) as at:
            place = WorkTreePlace(common_dir=at.repository.location.common_dir, name=name)
            self._check_writable(place)
            made = await create_work_tree(at, services.workspace, place, branch=branch, base=base)
            stored = StoredWorktree(
                handle=new_handle(),
                owner=self.scope.owner,
                common_dir=place.common_dir,
                name=name,
                branch=branch,
                base=made.base,
                git_dir=made.git_dir,
            )
            await services.stored.add(stored)
        return EnteredWorktree(
            worktree=_worktree(stored), created=True, files=made.files, left_out=self._shown(made, place)
        )

    def _shown(self, made: NewWorkTree, place: WorkTreePlace) -> tuple[str, ...]:
        """The files that were left out, but those that a rule hides."""
        workspace, top = self.services.workspace, os.path.dirname(place.common_dir)
        paths = ((name, CanonicalPath(f"{top}/{name}")) for name in made.left_out)
        return tuple(showable(name) for name, path in paths if not workspace.is_hidden(path))

    def _check_writable(self, place: WorkTreePlace) -> None:
        """Raises: Denied: the call may not write there."""
        if self.workspace.is_protected(place.path):
            # It raises with the reason.
            self.workspace.write_target(CanonicalPath(place.path))
        self.services.workspace.write_target(CanonicalPath(place.path))

    @property
    def _access(self) -> ChangeAccess:
        return self.services.access(self.workspace, self.scope)

    async def _remove(self, stored: StoredWorktree, *, discard: bool) -> ExitedWorktree:
        """Raises: Conflict: work would be lost, unless `discard`."""
        services, place = self.services, _place(stored)
        workspace = services.workspace
        access = services.access(workspace, self.scope)
        async with changing(
            access, workspace.canonical(os.path.dirname(place.common_dir)), finished=False
        ) as at:
            losses = await _losses(at, stored)
            if losses.sentences and not discard:
                raise Conflict(_refusal(stored, losses.sentences))
            await remove_work_tree(workspace, place, stored.git_dir)
            if losses.tip and not losses.keeps_branch:
                # A failure keeps the branch, which loses nothing.
                await at.change("update-ref", "-d", revisions=[f"{REF}{stored.branch}", losses.tip])
            await services.stored.remove(stored.handle)
        return ExitedWorktree(
            worktree=_worktree(stored),
            removed=True,
            branch_kept=bool(losses.tip) and losses.keeps_branch,
            discarded=losses.sentences,
        )


async def _losses(at: ChangingRepository, stored: StoredWorktree) -> _Losses:
    place = _place(stored)
    branch = await _branch(at, stored)
    if not is_there(place):
        return branch
    if not is_work_tree(place, stored.git_dir):
        return replace(branch, files=(_UNCHECKED,))
    repositories = at.access.repositories
    async with open_repository(repositories, repositories.workspace.canonical(place.path)) as repository:
        if repository.location.git_dir != stored.git_dir:
            return replace(branch, files=(_UNCHECKED,))
        files = await _changed(repository)
        head = await repository.ask("rev-parse", "--verify", "--quiet", revisions=["HEAD^{commit}"])
        commit = head.text.strip()
    commits: tuple[str, ...] = ()
    if commit and commit != branch.tip:
        others = await _refs_with(at, commit)
        if not others and commit != stored.base:
            commits = await _commits(at, stored.base, commit)
    if branch.keeps_branch and branch.commits:
        commits = (*branch.commits, *commits)
    return replace(branch, files=files, commits=commits)


async def _branch(at: ChangingRepository, stored: StoredWorktree) -> _Losses:
    """What becomes of the branch of a worktree."""
    ref = f"{REF}{stored.branch}"
    answer = await at.repository.ask(
        "for-each-ref", "--format=%(refname)%00%(objectname)%00%(worktreepath)", revisions=[ref]
    )
    lines = answer.text.split("\n")
    rows = [line.split("\0") for line in lines if line.startswith(f"{ref}\0")]
    if not rows:
        return _Losses(keeps_branch=False)
    _, tip, user = rows[0]
    if user and user != _place(stored).path:
        return _Losses(tip=tip)
    if tip == stored.base or await _refs_with(at, tip) - {ref}:
        return _Losses(tip=tip, keeps_branch=False)
    return _Losses(tip=tip, commits=await _commits(at, stored.base, tip))


async def _refs_with(at: ChangingRepository, commit: str) -> set[str]:
    """The branches and tags that contain a commit."""
    answer = await at.repository.ask(
        "for-each-ref",
        "--format=%(refname)",
        f"--contains={commit}",
        revisions=["refs/heads", "refs/remotes", "refs/tags"],
    )
    await at.repository.check(answer)
    return set(answer.text.splitlines())


async def _commits(at: ChangingRepository, base: str, tip: str) -> tuple[str, ...]:
    answer = await at.repository.ask(
        "log", "--oneline", "--no-decorate", f"--max-count={NAMED}", revisions=[f"{base}..{tip}"]
    )
    lines = answer.stdout.decode("utf-8", "replace").splitlines() if answer.status == 0 else []
    # The history may have been rewritten, so that `base` is unknown.
    return tuple(f"commit {showable(line)}" for line in lines) or (f"commit {tip}",)


async def _changed(repository: Repository) -> tuple[str, ...]:
    """What is not committed in a worktree, in words."""
    names = await _uncommitted(repository)
    shown = [showable(name) for name in names if not repository.is_hidden(name)]
    more = len(names) - len(shown[:NAMED])
    return (
        *(f"{name} (not committed)" for name in shown[:NAMED]),
        *((counted(more, "more file") + " (not committed)",) if more else ()),
    )


async def _uncommitted(repository: Repository) -> Sequence[str]:
    """The names of the files in a worktree that are not committed."""
    options = ("--porcelain=v2", "--untracked-files=all", "--no-renames", "-z")
    answer = await repository.ask("status", *options, limit=MAX_STATUS)
    await repository.check(answer)
    names = [change.path for change in parsed(answer.stdout, complete=not answer.truncated).changes]
    return [*names, *await _unseen(repository)]


async def _unseen(repository: Repository) -> Sequence[str]:
    """Files that a status does not show: in the place of a file that was left out, or of a submodule."""
    answer = await repository.ask("ls-files", "-t", "--stage", "-z", limit=MAX_LISTING)
    if answer.status != 0 or answer.truncated:
        raise await repository.failure(answer)
    found: list[str] = []
    for line in answer.fields:
        words, _, name = line.partition("\t")
        tag, mode, *_ = words.split(" ")
        if _is_work(f"{repository.location.top}/{name}", tag, mode):
            found.append(name)
    return found


def _is_work(path: str, tag: str, mode: str) -> bool:
    """Whether somebody put something where git looks no further."""
    if (tag != "S" and mode != SUBMODULE) or not os.path.lexists(path):
        return False
    try:
        return mode != SUBMODULE or bool(os.listdir(path))
    except OSError:
        return True


def _refusal(stored: StoredWorktree, sentences: Sequence[str]) -> str:
    listed = "\n".join(f"- {one}" for one in sentences)
    return (
        f"The worktree '{stored.name}' is not removed, because this would be lost or left without a worktree:"
        f"\n{listed}\nCommit and merge it, keep the worktree (`action` keep), or set `discard_changes`. A "
        "branch with commits of its own stays in any case."
    )


def _place(stored: StoredWorktree) -> WorkTreePlace:
    return WorkTreePlace(common_dir=stored.common_dir, name=stored.name)


def _worktree(stored: StoredWorktree) -> Worktree:
    return Worktree(
        id=stored.handle,
        name=stored.name,
        path=_place(stored).path,
        branch=stored.branch,
        base=stored.base,
    )


def _entered(worktree: Worktree) -> Entered:
    return Entered(id=worktree.id, path=worktree.path)
