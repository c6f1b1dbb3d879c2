"""The workspace: resolves paths to their canonical spelling, and opens them inside the roots.

The kernel resolves a path when it opens the object. A canonical path is a resolved one; if it resolves to
another path later, somebody has moved the object since, and the call is refused.
"""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Lock
from typing import Literal, Protocol, TypeVar

from mcp_toolserver.capabilities.call_scope import REMOVED
from mcp_toolserver.capabilities.files import CanonicalPath, Files
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, SettingsError, ToolError
from mcp_toolserver.runtime.files.atomic_write import Recording
from mcp_toolserver.runtime.files.file_history import FileHistory
from mcp_toolserver.runtime.files.located_path import LocatedPath
from mcp_toolserver.runtime.files.lookups import ClientThreads
from mcp_toolserver.runtime.files.os_errors import outside, refuse_virtual, require_regular_file, translate
from mcp_toolserver.runtime.files.path_locks import PathLocks
from mcp_toolserver.runtime.files.path_resolver import (
    FOLDER,
    Escape,
    Openat2,
    PathMoved,
    PathResolver,
    ResolvedPath,
    Walk,
    best_resolver,
    locate,
    relative_to,
)
from mcp_toolserver.runtime.files.protection import steers_git
from mcp_toolserver.runtime.files.root import Root, nested, open_root, part_of, reading
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from mcp_toolserver.runtime.files.write_target import WriteTarget
from mcp_toolserver.runtime.sandbox.protected.names import GIT
from mcp_toolserver.text.file_names import EXACT, NameComparison, VolumePath, folded
from mcp_toolserver.text.path_syntax import check_spelling

SIZE_LIMIT = 10 * 1024 * 1024
"""Bytes of a file that can be changed."""

_MAX_BYTES = 4_095
"""The maximum length of a path on Linux."""

_MAX_DEPTH = 255
"""Folders in one path. A limit, because each may have to be made or held open."""

_VIEWS = 64
"""Narrower views that are cached; clients rarely change their folders."""

_READINGS = 8
"""Views of single clients that are cached. They are few, so that those of clients that left soon go."""

Kind = Literal["file", "folder", "other", "missing"]

T = TypeVar("T")


class Temporary(Protocol):
    """A folder that file tools may use in addition to the roots: the temporary folder of a session, or that
    of its plan file."""

    @property
    def path(self) -> str:
        """Its absolute path, which neither lies in a root nor holds one."""
        ...

    def root(self) -> Root | None:
        """The folder, open; None if there is none."""
        ...


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
    """The folder of its repository, which the git tools use all the same."""

    @property
    def missing(self) -> str:
        """Why no path can be used once the folder is gone."""
        return (
            f"the worktree that this session works in, {self.path}, is not there any more, or something else "
            f"lies in its place. Call ExitWorktree with the id {self.id} first."
        )


_Reading = tuple[tuple[str, ...], tuple[Temporary, ...], ClientThreads]
"""What makes views of `reading` differ."""


@dataclass(frozen=True, kw_only=True)
class _Setup:
    """What a workspace and its narrower views share."""

    private: str
    readable: tuple[str, ...]
    hides: Callable[[tuple[str, ...]], bool]
    protects: Callable[[str], str | None]
    resolver: PathResolver
    temporary: tuple[Temporary, ...] = ()
    recording: Recording | None = None
    is_read_only: bool = False
    git_folders: tuple[str, ...] = ()
    locks: PathLocks = field(default_factory=PathLocks)
    threads: ClientThreads = field(default_factory=ClientThreads)


class Workspace:
    """The folders that file tools, searches and commands may work in.

    `private` is the state folder of the server, absolute, links resolved: hidden where it lies in a root.
    `hides` gets the spellings of a path and says whether a rule of the operator hides it. `protects` gets an
    absolute path that is to be written and says why it must not be, or None.

    Raises:
        SettingsError: a root is no folder, or lies in another.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        private: str = "",
        hides: Callable[[tuple[str, ...]], bool] = lambda _: False,
        protects: Callable[[str], str | None] = lambda _: None,
        resolver: PathResolver | None = None,
    ) -> None:
        self._setup = _Setup(
            private=private,
            readable=(),
            hides=hides,
            protects=protects,
            resolver=resolver or best_resolver(),
        )
        self._held = tuple(_root(given) for given in roots)
        if pair := nested(self._held):
            raise SettingsError(
                f"--root {pair[1].path} lies in --root {pair[0].path}; give only one of them."
            )
        self._why = ""
        self._views: dict[tuple[str, ...], Workspace] = {}
        self._views_lock = Lock()
        self._entered: dict[Entered, Workspace] = {}
        self._readings: dict[_Reading, Workspace] = {}

    @property
    def roots(self) -> tuple[str, ...]:
        """Absolute paths of the roots; relative paths start in the first."""
        return tuple(root.path for root in self._held)

    @property
    def git_folders(self) -> tuple[str, ...]:
        """Absolute paths of folders outside the roots that hold the repositories of worktrees in them; only
        the git tools use them."""
        return self._setup.git_folders

    @property
    def is_read_only(self) -> bool:
        """Whether no tool and no command may write here, although the server's mode allows it."""
        return self._setup.is_read_only

    def read_only(self, why: str) -> "Workspace":
        """The same workspace, in which nothing may be written. `why` continues a sentence that begins with
        the path."""

        def protects(_: str) -> str:
            return why

        setup = replace(self._setup, protects=protects, is_read_only=True)
        return _View(self._held, setup, self._why)

    def reading(
        self,
        folders: Sequence[str],
        temporary: Sequence[Temporary] = (),
        *,
        threads: ClientThreads | None = None,
    ) -> "Workspace":
        """The same workspace, in which the files in `folders` may be read too, but not changed, and those in
        each of `temporary` used; `threads` open and read.

        `folders` are the server's own: absolute paths, links resolved. May be called in several threads.
        """
        key = tuple(folders), tuple(temporary), threads or self._setup.threads
        with self._views_lock:
            if key not in self._readings:
                while len(self._readings) >= _READINGS:
                    del self._readings[next(iter(self._readings))]
                setup = replace(self._setup, readable=key[0], temporary=key[1], threads=key[2])
                self._readings[key] = _View(self._held, setup, self._why)
            return self._readings[key]

    def restricted_to(self, scope: Sequence[str], why: str = "") -> "Workspace":
        """The part of this workspace that lies in the folders `scope`; never more than this one.

        Blocks while the folders are looked up, and may be called in several threads. A view is kept once all
        folders are there: one that does not exist yet is looked for again. `why` says why `scope` is empty.
        """
        key = tuple(scope)
        if not key:
            return _View((), self._setup, why or self._why)
        with self._views_lock:
            if (known := self._views.get(key)) is not None:
                return known
        found = [self._parts(given) for given in key]
        view = _View(tuple(part for parts, _ in found for part in parts), self._setup, self._why)
        if all(is_there for _, is_there in found) and view.roots:
            return self._kept(key, view)
        return view

    def within(self, entered: Entered) -> "Workspace":
        """The same workspace with a folder in a root as its first root, or as its only one.

        Where that folder is no longer there, no path can be used: what is meant for it must not reach another
        root.
        """
        folder = entered.path
        with self._views_lock:
            known = self._entered.get(entered)
        if known is not None and known.is_in(folder):
            return known
        found = [part for part in self._parts(folder)[0] if part.path == folder]
        if not found:
            return _View((), self._setup, entered.missing)
        others = () if entered.only else self._held
        setup = self._setup
        if entered.only:
            setup = replace(setup, git_folders=(entered.git_folder,))
        view = _View((found[0], *others), setup)
        with self._views_lock:
            while len(self._entered) >= _VIEWS:
                del self._entered[next(iter(self._entered))]
            self._entered[entered] = view
        return view

    def is_in(self, folder: str) -> bool:
        """Whether the first root still lies at the absolute path `folder`."""
        return _is_at(self._held[0], folder)

    def _kept(self, key: tuple[str, ...], view: "Workspace") -> "Workspace":
        """The view that is kept for `key`: this one, unless another thread was faster."""
        with self._views_lock:
            if key not in self._views:
                while len(self._views) >= _VIEWS:
                    del self._views[next(iter(self._views))]
                self._views[key] = view
            return self._views[key]

    def elsewhere(self, folder: str) -> "Workspace":
        """Another folder under the same rules, in which nothing may be written.

        Raises:
            OSError: it is not a folder, or cannot be opened.
        """
        root = reading(folder)
        setup = replace(self._setup, readable=(), temporary=(), is_read_only=True)
        return _View((root,), setup)

    def without(self, folder: str) -> "Workspace":
        """The same workspace, in which the server's own `folder` cannot be read."""
        readable = tuple(one for one in self._setup.readable if one != folder)
        return _View(self._held, replace(self._setup, readable=readable), self._why)

    def recorded(self, recording: Recording | None) -> "Workspace":
        """The same workspace, which records the temporary files of its writes."""
        return _View(self._held, replace(self._setup, recording=recording))

    def guarded(self, objects: Callable[[str], str | None]) -> "Workspace":
        """The same workspace, which also refuses to write where `objects` returns a reason."""
        before = self._setup.protects

        def protects(absolute: str) -> str | None:
            return before(absolute) or objects(absolute)

        return _View(self._held, replace(self._setup, protects=protects), self._why)

    def is_protected(self, absolute: str) -> bool:
        """Whether no tool may write a file with this path."""
        return self._setup.protects(absolute) is not None

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
            spelt = self._canonical_spelling(root.at(found))
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
        try:
            found = self._open_path(path)
        except NotFound:
            return "missing"
        try:
            mode = os.fstat(found).st_mode
        finally:
            os.close(found)
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"

    async def read(self, path: CanonicalPath, work: Callable[[], T]) -> T:
        """Run `work`, which opens and reads `path` or what lies on its file system, in a thread that may
        hang."""
        return await self._setup.threads.read(partial(self._device, path), work)

    def _device(self, path: CanonicalPath) -> int:
        try:
            found = self._open_path(path)
        except NotFound:
            return 0
        try:
            return os.fstat(found).st_dev
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
                return self._setup.resolver.readable(found)
        finally:
            os.close(found)

    def write_target(self, path: CanonicalPath) -> WriteTarget:
        """The place where the file at `path` is written.

        Raises:
            Denied: if it is hidden, protected or read-only.
        """
        located, setup = self._located(path), self._setup
        if not located.root.writable:
            raise Denied(f"'{path}' belongs to the server and can only be read. Write inside the workspace.")
        _refuse_hidden(located)
        if located.relative == ".":
            raise InvalidInput(f"'{path}' is a folder, not a file. Name a file in it.")
        if why := setup.protects(located.spellings[-1]):
            raise Denied(f"'{path}' {why}")
        folder, _, name = located.relative.rpartition("/")
        is_temporary = located.root not in self._held
        is_head = folded(name, located.comparison) == folded("HEAD", located.comparison)
        if (is_head or steers_git(located.spellings[-1])) and setup.protects(located.root.at(GIT)):
            raise Denied(
                f"'{path}' could make its folder a git repository, or belongs to one: git acts upon "
                "that unasked, so no tool does it in workspace-write. Use another name, or tell the user."
            )
        return WriteTarget(
            resolver=self._resolver(located.root),
            root=located.root,
            folder=folder or ".",
            name=name,
            # What is temporary needs no sweeping.
            recording=None if is_temporary else setup.recording,
            is_temporary=is_temporary,
            comparison=located.comparison,
        )

    def open_inside(self, absolute: str) -> int | None:
        """The folder at the path `absolute`, open, for the caller to close; None outside the roots.

        Raises:
            FileNotFoundError: there is no such folder, or its path leads elsewhere.
        """
        for root in self._held:
            if (relative := relative_to(root.path, absolute)) is not None:
                try:
                    return self._resolver(root).open_exact(root.fd, relative)
                except (OSError, PathMoved, Escape):
                    raise FileNotFoundError(absolute) from None
        return None

    def files(
        self, *, write: bool, size_limit: int = SIZE_LIMIT, history: FileHistory | None = None
    ) -> Files:
        """The files of this workspace, as a capability; for reading only unless `write`.

        `history` is that of the session; without it, nothing is kept for undo.
        """
        return ConfinedFiles(
            self, locks=self._setup.locks, size_limit=size_limit, write=write, history=history
        )

    def lock(self, absolute: str) -> AbstractAsyncContextManager[None]:
        """The lock of a path, which serialises the changes of all calls."""
        return self._setup.locks.hold(absolute)

    def _resolver(self, root: Root) -> PathResolver:
        """What opens paths in `root`: `openat2` cannot tell the stored names."""
        own = self._setup.resolver
        is_exact = root.comparison is EXACT
        return own if is_exact or not isinstance(own, Openat2) else Walk()

    def _located(self, path: str, comparison: NameComparison = EXACT) -> LocatedPath:
        """Where `path` lies: as `canonical` found it, or found by its text."""
        if isinstance(path, LocatedPath):
            if path.view is self:
                return path
            comparison = path.comparison
        root, relative = self._split(path)
        return LocatedPath.below(
            root, relative, path=path, view=self, hides=self._hides, comparison=comparison
        )

    def _split(self, path: str) -> tuple[Root, str]:
        """The root of `path`, compared as text, and the rest. Raises: Denied: if in no root."""
        if not self._held:
            raise self._nowhere(path)
        if not path.startswith("/"):
            return self._held[0], path
        flat = f"/{path.lstrip('/')}"
        found = [
            (-len(relative.rstrip("/.")), root, relative)
            for root in self._openable(flat)
            if (relative := root.relative(flat)) is not None
        ]
        if not found:
            raise outside(path, self.roots)
        _, root, relative = max(found, key=lambda candidate: candidate[0])
        return root, relative

    def _nowhere(self, path: str) -> Denied:
        return outside(path, ())

    def _canonical_spelling(self, absolute: str) -> CanonicalPath:
        is_own = any(relative_to(own.path, absolute) for own in self._own)
        relative = None if is_own else relative_to(self._held[0].path, absolute)
        spelt = absolute if relative is None else relative
        if not spelt.isprintable():
            _check_spelling(spelt)
        return CanonicalPath(spelt)

    def _open_path(self, path: CanonicalPath) -> int:
        """Open the object at the canonical `path`. The caller closes it."""
        located = self._located(path)
        _refuse_hidden(located)
        try:
            with translate(path, self.roots):
                return self._resolver(located.root).open_exact(located.root.fd, located.relative)
        except NotFound:
            if located.root in self._own:
                raise NotFound(f"'{path}' is no longer there. {REMOVED}") from None
            raise
        except PathMoved:
            # The policy decided on `path`. The object there now may be hidden, or need another decision.
            raise Conflict(
                f"'{path}' became a link or was moved while it was being opened. Try again."
            ) from None

    def _hides(self, spellings: tuple[str, ...]) -> bool:
        return self._setup.hides(spellings) or self._is_private(spellings[-1])

    def _is_private(self, absolute: str) -> bool:
        private = self._setup.private
        if isinstance(absolute, VolumePath):
            private, absolute = folded(private), folded(absolute)
        if not private or relative_to(private, absolute) is None:
            return False
        usable = (*self._setup.readable, *(one.path for one in self._setup.temporary))
        return all(relative_to(folder, absolute) is None for folder in usable)

    def _openable(self, path: str) -> tuple[Root, ...]:
        """What the absolute `path` may lie in."""
        named = (one for one in self._setup.temporary if relative_to(one.path, path) is not None)
        found = (root for one in named if (root := one.root()) is not None)
        return (*self._held, *self._own, *found)

    @cached_property
    def _own(self) -> tuple[Root, ...]:
        """The server's own readable folders that exist."""
        found: list[Root] = []
        for folder in self._setup.readable:
            with suppress(OSError):
                found.append(reading(folder))
        return tuple(found)

    def _parts(self, given: str) -> tuple[list[Root], bool]:
        """The parts of the roots that lie in the folder `given`, or it in them; and whether it exists."""
        real = os.path.realpath(given)
        parts: list[Root] = []
        for root in self._held:
            relative = root.relative(real)
            if relative is None and relative_to(real, root.path):
                parts.append(root)
            elif relative is not None and (found := self._folder_in(root, relative)) is not None:
                parts.append(part_of(root, found, given))
        return parts, bool(parts) or os.path.isdir(real)

    def _folder_in(self, root: Root, relative: str) -> ResolvedPath | None:
        try:
            found = self._resolver(root).resolve(root.fd, relative)
        except (OSError, Escape):
            return None
        if stat.S_ISDIR(os.fstat(found.fd).st_mode):
            return found
        os.close(found.fd)
        return None


class _View(Workspace):
    """A part of a workspace, which shares its locks."""

    def __init__(self, held: tuple[Root, ...], setup: _Setup, why: str = "") -> None:
        self._setup = setup
        self._held = held
        self._why = why
        self._views = {}
        self._views_lock = Lock()
        self._entered = {}
        self._readings = {}

    def _nowhere(self, path: str) -> Denied:
        why = self._why or (
            "no folder that the client works in lies inside the roots of this server. Ask the user to open a "
            "folder inside them, or to start the server with another --root, or with --client-roots ignore."
        )
        return Denied(f"'{path}' cannot be used: {why}")


def _is_at(root: Root, path: str) -> bool:
    """Whether the folder open as `root` still lies at `path`."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(status, os.fstat(root.fd))


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
