"""Creates and removes linked work trees.

Git creates one inside the `.git` folder, where commands cannot write, and fills it there; then the server
moves it to its place with one rename. So no command can lead git astray with a link, and a work tree appears
complete or not at all. No hook and no filter runs. The server removes one the same way.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, Unavailable
from mcp_toolserver.runtime.files.root import WORKTREES
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.changing import ChangingRepository
from mcp_toolserver.runtime.git.repository import SECONDS, Repository
from mcp_toolserver.runtime.git.switch import REF, commit_id, is_sparse, is_spelt
from mcp_toolserver.runtime.git.versions import SUBMODULE, filtered_paths, filters, in_parts, peeled_commit
from mcp_toolserver.runtime.sandbox.protected.names import GIT, protected_name

MAX_FILES = 50_000
"""Files of a new work tree."""

MAX_BYTES = 1 << 30
"""Bytes of all its files."""

MAX_LISTING = 32 << 20
"""Bytes of git's list of files."""

_STAGING = "mcp-toolserver-"
"""How the folder begins in which git creates a work tree."""

_IGNORE = b"/*\n"
"""The `.gitignore` of the folder with the work trees: all of it. Anchored, so that it says nothing about the
files in them."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACE = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

# Git would write paths relative to each other, and an extension into the configuration, which stays as it is.
_SETTINGS = {"worktree.useRelativePaths": "false"}


@dataclass(frozen=True, kw_only=True)
class WorkTreePlace:
    """Where a linked work tree lies."""

    common_dir: str
    """The `.git` folder of its repository, absolute as all paths here."""
    name: str

    @property
    def folder(self) -> str:
        """The folder with all work trees of the repository."""
        return f"{os.path.dirname(self.common_dir)}/{WORKTREES}"

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class NewWorkTree:
    """A work tree that was created."""

    git_dir: str
    """Its own folder in the `.git` folder."""
    base: str
    """The id of its commit."""
    files: int
    left_out: tuple[str, ...]
    """Files of the commit that were not written, relative to the work tree. Git takes them for unchanged."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A file, link or submodule of the commit."""

    path: str
    mode: str
    size: int


async def create_work_tree(
    at: ChangingRepository, workspace: Workspace, place: WorkTreePlace, *, branch: str, base: str
) -> NewWorkTree:
    """Create a work tree with a new branch that starts from `base`, or from HEAD if that is empty.

    `workspace` has the roots of the server, where `at` may see less of them.

    Raises:
        InvalidInput: the commit does not exist, or cannot be checked out here.
        Conflict: something lies in its place, or the branch exists.
        Denied: nothing may be written there.
        TimedOut, Unavailable: git failed.
    """
    if is_sparse(at.repository):
        raise InvalidInput("This is a sparse checkout, of which no worktree is made. Ask the user to do it.")
    target = await commit_id(at, peeled_commit(base) if base else "HEAD^{commit}", base or "HEAD")
    if await at.repository.has(f"{REF}{branch}"):
        raise Conflict(f"The branch '{branch}' exists already. Choose another name for the worktree.")
    entries = await _entries(at.repository, target)
    protected = [entry.path for entry in entries if _is_left_out(workspace, place, entry.path)]
    with _opened(workspace, place) as (common, trees):
        staging = f"{_STAGING}{secrets.token_hex(8)}"
        os.mkdir(staging, 0o700, dir_fd=common)
        staged = _Staged(at=at, common=common, place=place, staging=staging)
        try:
            await staged.add(branch, target)
            try:
                git_dir, left_out = await staged.fill(target, entries, protected)
                staged.move(git_dir, trees)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await staged.forget(branch, target)
                raise
        finally:
            # Empty by now, unless something failed.
            with suppress(OSError):
                shutil.rmtree(staging, dir_fd=common)
    return NewWorkTree(
        git_dir=git_dir, base=target, files=len(entries) - len(left_out), left_out=tuple(left_out)
    )


async def remove_work_tree(workspace: Workspace, place: WorkTreePlace, git_dir: str) -> None:
    """Remove a work tree and what git knows of it. What is not there any more is no error.

    Raises:
        Conflict: the user locked it.
        Unavailable: not all of it could be removed.
    """
    with _opened(workspace, place) as (common, trees):
        known = f"worktrees/{os.path.basename(git_dir)}"
        is_known = _text(git_dir, "gitdir") == f"{place.path}/.git\n"
        if is_known and _exists(common, f"{known}/locked"):
            raise Conflict(
                f"The user locked the worktree '{place.name}' (git worktree lock), so it is not removed."
            )
        doomed = f"{_STAGING}{secrets.token_hex(8)}"
        try:
            os.mkdir(doomed, 0o700, dir_fd=common)
            if _is_folder(trees, place.name):
                os.rename(place.name, f"{doomed}/{place.name}", src_dir_fd=trees, dst_dir_fd=common)
            if is_known:
                os.rename(known, f"{doomed}/.known", src_dir_fd=common, dst_dir_fd=common)
            await to_thread.run_sync(partial(shutil.rmtree, doomed, dir_fd=common))
        except OSError as error:
            raise Unavailable(
                f"The worktree '{place.name}' could not be removed whole ({error.strerror}). What is left is "
                f"in {place.common_dir}/{doomed}. Ask the user to remove it."
            ) from None
        with suppress(OSError):
            os.rmdir("worktrees", dir_fd=common)


def is_work_tree(place: WorkTreePlace, git_dir: str) -> bool:
    """Whether the work tree lies in its place, and belongs to `git_dir`."""
    return os.path.isdir(place.path) and _text(place.path, ".git") == f"gitdir: {git_dir}\n"


def is_there(place: WorkTreePlace) -> bool:
    """Whether a folder lies in its place."""
    return os.path.isdir(place.path) and not os.path.islink(place.path)


@dataclass(frozen=True, kw_only=True)
class _Staged:
    """A work tree inside the `.git` folder."""

    at: ChangingRepository
    common: int
    """File descriptor of the `.git` folder."""
    place: WorkTreePlace
    staging: str

    @property
    def _relative(self) -> str:
        return f"{self.staging}/{self.place.name}"

    @property
    def _path(self) -> str:
        return f"{self.place.common_dir}/{self._relative}"

    async def add(self, branch: str, target: str) -> None:
        """Have git make it and the branch, without files."""
        repository = self.at.repository
        query = GitInvocation("worktree", (f"-b{branch}",), (target,), (self._relative,))
        # Git that is interrupted leaves its locks.
        with anyio.CancelScope(shield=True):
            answer = await repository.access.git.change(
                repository.location, query, cwd=self.common, timeout=SECONDS, settings=_SETTINGS
            )
            self.at.check(answer)

    async def fill(
        self, target: str, entries: Sequence[_Entry], protected: Sequence[str]
    ) -> tuple[str, list[str]]:
        """Write the files but those that are `protected`; returns the git folder and all left out."""
        top = os.open(self._relative, _FOLDER, dir_fd=self.common)
        try:
            new = await self._repository(top)
            new.check(await new.change("read-tree", revisions=[target]))
            files = [entry.path for entry in entries if entry.mode != SUBMODULE]
            filtered = filtered_paths(new.repository, await filters(new.repository, files))
            left_out = sorted({*protected, *filtered})
            for part in in_parts(left_out):
                new.check(await new.change("update-index", "--skip-worktree", paths=part))
            new.check(await new.change("checkout-index"))
            # Only makes the next status faster.
            await new.change("update-index", "--refresh")
        finally:
            os.close(top)
        return new.repository.location.git_dir, left_out

    async def _repository(self, top: int) -> ChangingRepository:
        """The new work tree, with the configuration that git reads there."""
        git = self.at.repository.access.git
        location = await git.locate(cwd=top, timeout=SECONDS)
        expected = (self._path, self.place.common_dir)
        if (location.top, location.common_dir) != expected or location.git_dir == location.common_dir:
            raise Unavailable("git made a worktree in another place than it was asked to. Tell the user.")
        repository = replace(
            self.at.repository,
            location=location,
            top=CanonicalPath(self._path),
            top_fd=top,
            relative=".",
        )
        return ChangingRepository(repository=repository, access=self.at.access)

    def move(self, git_dir: str, trees: int) -> None:
        """Move it to its place, where git will look for it."""
        name = self.place.name
        try:
            if _exists(trees, name):
                raise _taken(self.place)
            known = os.open(f"worktrees/{os.path.basename(git_dir)}/gitdir", _REPLACE, dir_fd=self.common)
            with os.fdopen(known, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{self.place.path}/.git\n")
            os.rename(self._relative, name, src_dir_fd=self.common, dst_dir_fd=trees)
        except OSError as error:
            raise Unavailable(
                f"The worktree cannot be put into '{WORKTREES}' ({error.strerror}). Tell the user."
            ) from None

    async def forget(self, branch: str, target: str) -> None:
        """Remove what git knows of it, and its branch."""
        pointer = _text(self._path, ".git").removeprefix("gitdir: ").strip("\n")
        if os.path.dirname(pointer) == f"{self.place.common_dir}/worktrees":
            with suppress(OSError):
                shutil.rmtree(f"worktrees/{os.path.basename(pointer)}", dir_fd=self.common)
                os.rmdir("worktrees", dir_fd=self.common)
        await self.at.change("update-ref", "-d", revisions=[f"{REF}{branch}", target])


async def _entries(repository: Repository, target: str) -> list[_Entry]:
    """Return what the commit contains. Raises: InvalidInput: it is too much."""
    answer = await repository.ask("ls-tree", "-r", "--long", "-z", revisions=[target], limit=MAX_LISTING)
    await repository.check(answer)
    lines = answer.fields
    found = [_entry(*line.partition("\t")[::2]) for line in lines]
    if answer.truncated or len(found) > MAX_FILES or sum(entry.size for entry in found) > MAX_BYTES:
        raise InvalidInput(
            f"The commit has more than {MAX_FILES:,} files or {MAX_BYTES >> 20} MiB, which is too much for a "
            "worktree here. Ask the user to make it with git."
        )
    return found


def _entry(words: str, path: str) -> _Entry:
    mode, _, _, size = words.split()
    return _Entry(path=path, mode=mode, size=0 if size == "-" else int(size))


def _is_left_out(workspace: Workspace, place: WorkTreePlace, name: str) -> bool:
    """Whether no file tool may write the file, or a rule hides it."""
    # Without resolving it, because a link there has nothing to do with the new file.
    path = CanonicalPath(f"{os.path.dirname(place.common_dir)}/{name}")
    parts = name.split("/")
    is_git = parts[-1].upper() == "HEAD" or any(protected_name(part) == GIT for part in parts)
    return not is_spelt(name) or is_git or workspace.is_protected(path) or workspace.is_hidden(path)


@contextmanager
def _opened(workspace: Workspace, place: WorkTreePlace) -> Generator[tuple[int, int]]:
    """Open the `.git` folder and the folder with the work trees, which is made if it is missing.

    Raises:
        Denied, Conflict: it is a link, or no folder.
        Unavailable: it cannot be made.
    """
    common, top, trees = _held(workspace, place.common_dir), -1, -1
    try:
        top = _held(workspace, os.path.dirname(place.common_dir))
        with suppress(FileExistsError):
            os.mkdir(WORKTREES, dir_fd=top)
        trees = os.open(WORKTREES, _FOLDER, dir_fd=top)
        with (
            suppress(FileExistsError),
            os.fdopen(os.open(".gitignore", _CREATE, 0o666, dir_fd=trees), "wb") as file,
        ):
            file.write(_IGNORE)
    except OSError as error:
        if trees < 0 and _exists(top, WORKTREES):
            raise Denied(
                f"'{WORKTREES}' is a link or no folder, so it holds no worktrees. Ask the user to remove it."
            ) from None
        raise Unavailable(f"'{WORKTREES}' cannot be written ({error.strerror}). Tell the user.") from None
    else:
        yield common, trees
    finally:
        for descriptor in (common, top, trees):
            if descriptor >= 0:
                os.close(descriptor)


def _held(workspace: Workspace, path: str) -> int:
    """Open a folder of the roots, on whose path there is no link."""
    try:
        found = workspace.open_inside(path)
    except FileNotFoundError:
        found = None
    if found is None:
        raise Denied(
            f"The folder {path} is not a real folder inside the roots, so no worktree is made there."
        )
    return found


def _taken(place: WorkTreePlace) -> Conflict:
    return Conflict(f"'{WORKTREES}/{place.name}' exists already. Choose another name for the worktree.")


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_folder(folder: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _text(folder: str, name: str) -> str:
    """A small file in a folder of git; empty if there is none."""
    try:
        file = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, 8192).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(file)
