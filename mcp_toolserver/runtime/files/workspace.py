"""The workspace: resolves paths to their canonical spelling, and opens them inside the roots.

The kernel resolves a path when it opens the object. A canonical path is a resolved one; if it resolves to
another path later, somebody has moved the object since, and the call is refused.
"""

import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Literal, TypeVar

import anyio

from mcp_toolserver.capabilities.call_scope import REMOVED
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, SettingsError, ToolError
from mcp_toolserver.runtime.files.lookups import PathLookups
from mcp_toolserver.runtime.files.os_errors import outside, refuse_virtual, require_regular_file, translate
from mcp_toolserver.runtime.files.path_resolver import (
    FOLDER,
    Escape,
    Openat2,
    PathMoved,
    Walk,
    best_resolver,
    is_open_as,
    locate,
    relative_to,
)
from mcp_toolserver.runtime.files.protection import steers_git
from mcp_toolserver.runtime.files.root import (
    LocatedPath,
    Root,
    TemporaryFolder,
    in_work_tree,
    nested,
    open_root,
    part_of,
)
from mcp_toolserver.runtime.files.transaction import WriteTarget
from mcp_toolserver.runtime.sandbox.protected.names import GIT
from mcp_toolserver.stores.running_servers import RunningServer
from mcp_toolserver.text.file_names import (
    EXACT,
    NameComparison,
    VolumePath,
    check_spelling,
    folded,
    volume_path,
    widest,
)

_MAX_BYTES = 4_095
"""The maximum length of a path on Linux."""

_MAX_DEPTH = 255
"""Folders in one path. A limit, because each may have to be made or held open."""

_FOLDERS = 64
"""Folders of clients that are held open; clients rarely change their folders."""

_READ_ONLY = (
    "lies in a root that the operator gave as read-only, so nothing changes it. Write elsewhere, or tell the "
    "user."
)

_NO_FOLDER = (
    "no folder that the client works in lies inside the roots of this server. Ask the user to open a "
    "folder inside them, or to start the server with another --root, or with --client-roots ignore."
)

Kind = Literal["file", "folder", "other", "missing"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A worktree that a session works in."""

    id: str
    """Its handle."""
    path: str
    """Absolute, without links; in a root."""
    only: bool = False
    """Whether the session sees nothing else of the roots."""
    git_folder: str = ""
    """The folder of its repository, which git uses all the same."""


class PathLocks:
    """One lock per path, which exists only while calls hold it or wait for it: first come, first served."""

    def __init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = {}

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncGenerator[None]:
        lock = self._locks.setdefault(path, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(path, None)


_Parts = dict[tuple[tuple[Root, ...], str], tuple[Root, ...]]
"""The open parts of roots that lie in the folders of clients."""


@dataclass(frozen=True, eq=False)
class Workspace:
    """The folders that file tools, searches and commands may work in: a value, of which `replace` makes
    narrower views that share its locks.

    Methods with a canonical path raise `NotFound` where nothing is there, `Denied` where a rule hides it or
    it must not be read or written, and `InvalidInput` for another kind of object.

    Raises:
        SettingsError: a root is no folder, or lies in another.
    """

    given: InitVar[Sequence[str]] = ()
    """The roots, to be opened."""
    _: KW_ONLY
    private: str = ""
    """The state folder of the server, absolute, links resolved: hidden where it lies in a root."""
    hides: Callable[[tuple[str, ...]], bool | str] = lambda _: False
    """Gets the spellings of a path; says whether, or which, rule of the operator hides it."""
    protects: Callable[[str], str | None] = lambda _: None
    """Gets an absolute path that is to be written; says why it must not be, or None."""
    read_only_folders: tuple[str, ...] = ()
    """Roots, and folders in them, that nothing may write in: absolute, links resolved."""
    resolver: Walk = field(default_factory=best_resolver)
    held: tuple[Root, ...] = ()
    why_none: str = _NO_FOLDER
    """Why there is no root, where there is none."""
    readable: tuple[str, ...] = ()
    """Folders of the server's own whose files may be read: absolute paths, links resolved."""
    temporary: tuple[TemporaryFolder, ...] = ()
    recording: RunningServer | None = None
    """Records the temporary files of writes."""
    is_read_only: bool = False
    """Whether no tool and no command may write here, although the server's mode allows it."""
    keeps_git: bool = False
    """Whether no command may write in the repositories here, although the server's settings allow it."""
    git_folders: tuple[str, ...] = ()
    """Absolute paths of folders outside the roots that hold the repositories of worktrees in them; only git,
    of tools and of commands, uses them."""
    lookups: PathLookups = field(default_factory=PathLookups)
    client: str = ""
    """Whose threads in `lookups` open and read."""
    locks: PathLocks = field(default_factory=PathLocks)
    """Serialise the changes of all calls, by absolute path."""
    parts: _Parts = field(default_factory=_Parts)
    parts_lock: Lock = field(default_factory=Lock)
    roots: tuple[str, ...] = field(init=False)
    """Absolute paths of the roots; relative paths start in the first."""
    shown: tuple[str, ...] = field(init=False)
    """What commands see of the roots of the server, as absolute paths."""

    def __post_init__(self, given: Sequence[str]) -> None:
        held = tuple(map(_root, given)) if given else self.held
        if given and (pair := nested(held)):
            raise SettingsError(
                f"--root {pair[1].path} lies in --root {pair[0].path}; give only one of them."
            )
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "roots", tuple([root.path for root in held]))
        object.__setattr__(self, "shown", (*self.roots, *self.git_folders) if held else ())

    def read_only(self, why: str) -> "Workspace":
        """The same workspace, in which nothing may be written. `why` continues a sentence that begins with
        the path."""

        def protects(_: str) -> str:
            return why

        return replace(self, protects=protects, is_read_only=True)

    def guarded(self, objects: Callable[[str], str | None]) -> "Workspace":
        """The same workspace, which also refuses to write where `objects` returns a reason."""

        def protects(absolute: str) -> str | None:
            return self.protects(absolute) or objects(absolute)

        return replace(self, protects=protects)

    def without(self, folder: str) -> "Workspace":
        """The same workspace, in which the server's own `folder` cannot be read."""
        return replace(self, readable=tuple(one for one in self.readable if one != folder))

    def elsewhere(self, folder: str) -> "Workspace":
        """Another folder under the same rules, in which nothing may be written.

        Raises:
            OSError: it is not a folder, or cannot be opened.
        """
        held = (open_root(folder, is_own=True),)
        return replace(self, held=held, readable=(), temporary=(), is_read_only=True)

    def restricted_to(self, scope: Sequence[str], why: str = "") -> "Workspace":
        """The part of this workspace that lies in the folders `scope`; never more than this one.

        Blocks while the folders are looked up, and may be called in several threads. `why` says why `scope`
        is empty.
        """
        if not scope:
            return replace(self, held=(), why_none=why or self.why_none)
        return replace(self, held=tuple(part for given in scope for part in self._parts(given)))

    def within(self, entered: Entered) -> "Workspace":
        """The same workspace with a folder in a root as its first root, or as its only one.

        Where that folder is no longer there, no path can be used: what is meant for it must not reach another
        root.
        """
        found = [part for part in self._parts(entered.path, moved=False) if part.path == entered.path]
        if not found:
            why = (
                f"the worktree that this session works in, {entered.path}, is not there any more, or "
                f"something else lies in its place. Call ExitWorktree with the id {entered.id} first."
            )
            return replace(self, held=(), why_none=why)
        if entered.only:
            return replace(self, held=(found[0],), git_folders=(entered.git_folder,))
        return replace(self, held=(found[0], *self.held))

    def _parts(self, given: str, *, moved: bool = True) -> tuple[Root, ...]:
        """The parts of the roots that lie in the folder `given`, or it in them. They stay open, because most
        calls ask for the same; `moved` says whether those count that have another path by now."""
        known = self.parts.get((self.held, given), ())
        if known and (moved or all(is_open_as(part.path, part.fd, follow_symlinks=False) for part in known)):
            return known
        if found := tuple(self._opened_parts(given)):
            with self.parts_lock:
                self.parts.pop((self.held, given), None)
                while len(self.parts) >= _FOLDERS:
                    del self.parts[next(iter(self.parts))]
                self.parts[self.held, given] = found
        return found

    def _opened_parts(self, given: str) -> Iterator[Root]:
        real = os.path.realpath(given)
        for root in self.held:
            relative = root.relative(real)
            if relative is None:
                if relative_to(real, root.path):
                    yield root
                continue
            with suppress(OSError, Escape):
                found = self._resolver(root).resolve(root.fd, relative)
                if stat.S_ISDIR(os.fstat(found.fd).st_mode):
                    yield part_of(root, found, given)
                else:
                    os.close(found.fd)

    def is_protected(self, absolute: str) -> bool:
        """Whether no tool may write a file with this path."""
        return self.objection(absolute) is not None

    def objection(self, absolute: str) -> str | None:
        """Why no tool may write a file with this path, as the end of a sentence that begins with it."""
        return _READ_ONLY if self.lies_in_read_only(absolute) else self.protects(absolute)

    def lies_in_read_only(self, absolute: str) -> bool:
        """Whether the path lies in a root that is read-only, however the volume spells it."""
        if not self.read_only_folders:
            return False
        is_exact = all(root.comparison is EXACT for root in self.held)
        spelt = str if is_exact else folded
        return any(relative_to(spelt(one), spelt(absolute)) for one in self.read_only_folders)

    def canonical(self, path: str) -> CanonicalPath:
        """The one spelling of `path`, which need not exist: relative to the first root, or else absolute.

        Raises:
            Denied: outside the roots.
            InvalidInput: no file can have this path.
        """
        _check_spelling(path)
        if not path or len(path.encode()) > _MAX_BYTES or path.count("/") > _MAX_DEPTH:
            raise InvalidInput(
                f"A path has 1 to {_MAX_BYTES} bytes and at most {_MAX_DEPTH} slashes; '.' is the first root."
            )
        root, relative = self._split(path)
        with translate(path, self.roots):
            found, comparison = locate(self._resolver(root), root.fd, relative)
            absolute = root.at(found)
            is_own = any(relative_to(folder, absolute) for folder in self.readable)
            spelt = (None if is_own else relative_to(self.held[0].path, absolute)) or absolute
            if not spelt.isprintable():
                _check_spelling(spelt)
        return CanonicalPath(self._located(spelt, comparison))

    def spellings(self, path: CanonicalPath) -> tuple[str, ...]:
        """The spellings of `path` that rules match: relative to its configured root, and absolute."""
        return self._located(path).spellings

    def root_of(self, path: CanonicalPath) -> str:
        """The absolute path of the root, or other folder of this workspace, that `path` lies in."""
        return self._located(path).root.path

    def is_hidden(self, path: CanonicalPath) -> bool:
        """Whether a rule of the operator hides what lies at `path`, or it is private to the server."""
        return self._located(path).is_hidden

    def kind(self, path: CanonicalPath) -> Kind:
        """The kind of the object at `path`. Raises: Denied: if it is hidden."""
        status = self._status(path)
        if status is None:
            return "missing"
        mode = status.st_mode
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"

    async def read(self, path: CanonicalPath, work: Callable[[], T]) -> T:
        """Run `work`, which opens and reads `path` or what lies on its file system, in a thread that may
        hang."""
        status = await self.lookups.run(self.client, partial(self._status, path))
        return await self.lookups.read(self.client, status.st_dev if status else 0, work)

    def _status(self, path: CanonicalPath) -> os.stat_result | None:
        try:
            found = self._open_path(path)
        except NotFound:
            return None
        try:
            return os.fstat(found)
        finally:
            os.close(found)

    def hold_dir(self, path: CanonicalPath) -> int:
        """Hold a folder, to start a program in it or to open what lies in it. The caller closes it.

        Where `O_PATH` exists this only looks the folder up, so it waits for no file system that hangs in
        `open`.

        Raises:
            NotFound: if missing.
            Denied: if hidden by a rule.
            InvalidInput: if it is not a folder.
        """
        found = self._open_path(path)
        try:
            with translate(path, self.roots):
                if not stat.S_ISDIR(os.fstat(found).st_mode):
                    raise InvalidInput(f"'{path}' is not a folder. Name the folder that it lies in.")
                refuse_virtual(found, path)
        except ToolError:
            os.close(found)
            raise
        return found

    def open_dir(self, path: CanonicalPath) -> int:
        """Open a folder for listing. The caller closes it, and is no event loop: this may hang.

        Raises:
            NotFound, InvalidInput: as for `hold_dir`.
            Denied: if hidden by a rule, or not readable.
        """
        found = self.hold_dir(path)
        try:
            with translate(path, self.roots):
                return os.open(".", FOLDER, dir_fd=found)
        finally:
            os.close(found)

    def open_file(self, path: CanonicalPath) -> int:
        """Open a regular file for reading. The caller closes it, and is no event loop: a file system that
        does not answer hangs it.

        It has no effect on a device or FIFO: only regular files are opened for reading.

        Raises:
            NotFound: if missing.
            Denied: if hidden by a rule, or not readable.
            InvalidInput: if it is not a regular file.
        """
        found = self._open_path(path)
        try:
            with translate(path, self.roots):
                require_regular_file(os.fstat(found).st_mode, path)
                refuse_virtual(found, path)
                return self.resolver.readable(found)
        finally:
            os.close(found)

    def write_target(self, path: CanonicalPath) -> WriteTarget:
        """The place where the file at `path` is written.

        Raises:
            Denied: if it is hidden, protected or read-only.
        """
        located = self._located(path)
        if not located.root.writable:
            raise Denied(f"'{path}' belongs to the server and can only be read. Write inside the workspace.")
        _refuse_hidden(located)
        if located.relative == ".":
            raise InvalidInput(f"'{path}' is a folder, not a file. Name a file in it.")
        if why := self.objection(located.spellings[-1]):
            raise Denied(f"'{path}' {why}")
        name = located.relative.rpartition("/")[2]
        is_temporary = located.root not in self.held
        is_head = folded(name, located.comparison) == folded("HEAD", located.comparison)
        if self.protects(located.root.at(GIT)) and (is_head or steers_git(located.spellings[-1])):
            raise Denied(
                f"'{path}' could make its folder a git repository, or belongs to one: git acts upon "
                "that unasked, so no tool does it in workspace-write. Use another name, or tell the user."
            )
        return WriteTarget(
            resolver=self._resolver(located.root),
            path=located,
            # What is temporary needs no sweeping.
            recording=None if is_temporary else self.recording,
            is_temporary=is_temporary,
        )

    def open_inside(self, absolute: str) -> int | None:
        """The folder at the path `absolute`, open, for the caller to close; None outside the roots.

        Raises:
            FileNotFoundError: there is no such folder, or its path leads elsewhere.
        """
        for root in self.held:
            if (relative := relative_to(root.path, absolute)) is not None:
                try:
                    return self._resolver(root).open_exact(root.fd, relative)
                except (OSError, PathMoved, Escape):
                    raise FileNotFoundError(absolute) from None
        return None

    def _resolver(self, root: Root) -> Walk:
        """What opens paths in `root`: `openat2` cannot tell the stored names."""
        is_exact = root.comparison is EXACT
        return self.resolver if is_exact or not isinstance(self.resolver, Openat2) else Walk()

    def _located(self, path: str, comparison: NameComparison = EXACT) -> LocatedPath:
        """Where `path` lies: as `canonical` found it, with the comparison of its folder, or found by its
        text."""
        if isinstance(path, LocatedPath):
            if path.view is self:
                return path
            comparison = path.comparison
        located = LocatedPath(path)
        root, relative = self._split(path)
        absolute = root.at(relative)
        if comparison is not root.comparison:
            comparison = widest(comparison, root.comparison)
        from_base = relative_to(root.base, absolute) if root.base else None
        spellings = (absolute,) if from_base is None else (*in_work_tree(from_base, comparison), absolute)
        located.view, located.root, located.relative = self, root, relative
        located.comparison = comparison
        if comparison is not EXACT:
            spellings = tuple(volume_path(one, comparison) for one in spellings)
        located.spellings = spellings
        located.is_hidden = bool(self.hides(spellings)) or self._is_private(spellings[-1])
        return located

    def _split(self, path: str) -> tuple[Root, str]:
        """The root of `path`, compared as text, and the rest."""
        if not self.held:
            raise Denied(f"'{path}' cannot be used: {self.why_none}")
        if not path.startswith("/"):
            return self.held[0], path
        flat = f"/{path.lstrip('/')}"
        found = [
            (-len(relative.rstrip("/.")), root, relative)
            for root in (*self.held, *self._others(flat))
            if (relative := root.relative(flat)) is not None
        ]
        if not found:
            raise outside(path, self.roots)
        _, root, relative = max(found, key=lambda candidate: candidate[0])
        return root, relative

    def _others(self, path: str) -> Iterator[Root]:
        """What the absolute `path` lies in other than roots."""
        for folder in self.readable:
            if relative_to(folder, path) is not None:
                with suppress(OSError):
                    yield open_root(folder, is_own=True)
        for one in self.temporary:
            if relative_to(one.path, path) is not None and (root := one.root()) is not None:
                yield root

    def _open_path(self, path: CanonicalPath) -> int:
        """Open the object at the canonical `path`. The caller closes it."""
        located = self._located(path)
        _refuse_hidden(located)
        try:
            with translate(path, self.roots):
                return self._resolver(located.root).open_exact(located.root.fd, located.relative)
        except NotFound:
            if located.root.path in self.readable:
                raise NotFound(f"'{path}' is no longer there. {REMOVED}") from None
            raise
        except PathMoved:
            # The policy decided on `path`. The object there now may be hidden, or need another decision.
            raise Conflict(
                f"'{path}' became a link or was moved while it was being opened. Try again."
            ) from None

    def _is_private(self, absolute: str) -> bool:
        private = self.private
        if isinstance(absolute, VolumePath):
            private, absolute = folded(private), folded(absolute)
        if not private or relative_to(private, absolute) is None:
            return False
        usable = (*self.readable, *(one.path for one in self.temporary))
        return all(relative_to(folder, absolute) is None for folder in usable)


def _root(given: str) -> Root:
    try:
        return open_root(given)
    except OSError:
        raise SettingsError(f"--root {given}: not a folder that can be opened.") from None


def _refuse_hidden(path: LocatedPath) -> None:
    if path.is_hidden:
        raise Denied(
            f"'{path}' is hidden by a rule of the operator; it can be neither read nor changed. Go on "
            "without it."
        )


def _check_spelling(path: str) -> None:
    try:
        check_spelling(path)
    except ValueError as error:
        raise InvalidInput(f"The path, or what it leads to, cannot be used: {error}.") from None
