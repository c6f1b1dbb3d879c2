"""The workspace: which paths there are, in which spelling, and what lies there.

The kernel decides where a path leads, on the object it opens. A canonical path is one that has been resolved;
when what lies there later turns out to lie elsewhere, somebody has moved it since, and the call is refused.
"""

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from mcp_toolserver.capabilities.files import CanonicalPath, Files
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, SettingsError
from mcp_toolserver.runtime.beneath import (
    FOLDER,
    Elsewhere,
    Engine,
    Escape,
    Reached,
    below,
    best_engine,
    locate,
)
from mcp_toolserver.runtime.files import ConfinedFiles
from mcp_toolserver.runtime.locks import PathLocks
from mcp_toolserver.runtime.place import Place
from mcp_toolserver.runtime.refusals import explained, outside, refuse_special, refuse_synthetic
from mcp_toolserver.runtime.roots import Root, configured, narrowed, nested, reading
from mcp_toolserver.runtime.windows_names import apply, windows_refusal
from mcp_toolserver.text.paths import lexical

SIZE_LIMIT = 10 * 1024 * 1024
"""Bytes of a file that can be changed."""

_MAX_BYTES = 4_095
"""Of a path, on Linux."""

_MAX_DEPTH = 255
"""Folders in one path; nobody has that many, and every one may have to be made or held open."""

_VIEWS = 64
"""Narrower views kept; clients rarely change their minds about their folders."""

Kind = Literal["file", "folder", "other", "missing"]


@dataclass(frozen=True, kw_only=True)
class _Setup:
    """What a workspace and its narrower views have in common."""

    readable: Callable[[], str | None]
    hides: Callable[[tuple[str, ...]], bool]
    protects: Callable[[str], str | None]
    engine: Engine
    locks: PathLocks = field(default_factory=PathLocks)


def _nothing() -> str | None:
    return None


def _hides_nothing(_: tuple[str, ...]) -> bool:
    return False


def _protects_nothing(_: str) -> str | None:
    return None


class Workspace:
    """The folders that file tools, searches and commands may work in.

    `readable` names a folder of the server's own whose files may be read but not changed. `hides` gets the
    spellings of a path and says whether a rule of the operator hides it. `protects` gets an absolute path
    that is to be written and says why it must not be, or None.

    Raises:
        SettingsError: a root is no folder, or lies in another.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        readable: Callable[[], str | None] = _nothing,
        hides: Callable[[tuple[str, ...]], bool] = _hides_nothing,
        protects: Callable[[str], str | None] = _protects_nothing,
        engine: Engine | None = None,
    ) -> None:
        self._setup = _Setup(
            readable=readable,
            hides=hides,
            protects=protects,
            engine=engine or best_engine(),
        )
        self._held = tuple(_root(given) for given in roots)
        if pair := nested(self._held):
            raise SettingsError(
                f"--root {pair[1].path} lies in --root {pair[0].path}; give only one of them."
            )
        self._views: dict[tuple[str, ...], Workspace] = {}
        self._reading: Root | None = None

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Absolute paths of the roots; relative paths start in the first."""
        return tuple(root.path for root in self._held)

    def within(self, scope: Sequence[str]) -> "Workspace":
        """The part of this workspace that lies in the folders `scope`; never more than this one."""
        key = tuple(scope)
        if key not in self._views:
            held = tuple(part for given in key for part in self._parts(given))
            if not held:
                return _View(held, self._setup)
            while len(self._views) >= _VIEWS:
                del self._views[next(iter(self._views))]
            self._views[key] = _View(held, self._setup)
        return self._views[key]

    def guarded(self, objects: Callable[[str], str | None]) -> "Workspace":
        """The same workspace, in which a file is not written where `objects` says why."""
        before = self._setup.protects

        def protects(absolute: str) -> str | None:
            return before(absolute) or objects(absolute)

        return _View(self._held, replace(self._setup, protects=protects))

    def is_protected(self, absolute: str) -> bool:
        """Whether a file with this path is not to be written, whoever asks."""
        return self._setup.protects(absolute) is not None

    def canonical(self, path: str) -> CanonicalPath:
        """The one spelling of `path`, which need not exist: relative to the first root, or else absolute.

        Raises:
            Denied: outside the roots.
            InvalidInput: no file can have this path.
        """
        _lexical(path)
        if not path or len(path.encode()) > _MAX_BYTES or path.count("/") > _MAX_DEPTH:
            raise InvalidInput(
                f"A path has 1 to {_MAX_BYTES} bytes and at most {_MAX_DEPTH} slashes; '.' is the first root."
            )
        root, inner = self._split(path)
        with explained(path, self.roots):
            return self._spelt(root.at(locate(self._setup.engine, root.fd, inner)))

    def spellings(self, path: CanonicalPath) -> tuple[str, ...]:
        """What a rule may call `path`: relative to its configured root, and absolute."""
        root, inner = self._split(path)
        absolute = root.at(inner)
        relative = below(root.base, absolute) if root.base else None
        return (absolute,) if relative is None else (relative, absolute)

    def is_hidden(self, path: CanonicalPath) -> bool:
        """Whether a rule of the operator hides what lies at `path`."""
        return self._setup.hides(self.spellings(path))

    def kind(self, path: CanonicalPath) -> Kind:
        """What lies at `path`. Raises: Denied: it is hidden."""
        try:
            found = self._reach(path)
        except NotFound:
            return "missing"
        try:
            mode = os.fstat(found).st_mode
        finally:
            os.close(found)
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"

    def folder(self, path: CanonicalPath) -> int:
        """A folder, open for listing. The caller closes it.

        Raises:
            NotFound, Denied: it is not there, or not for reading.
            InvalidInput: it is no folder.
        """
        found = self._reach(path)
        try:
            with explained(path, self.roots):
                if not stat.S_ISDIR(os.fstat(found).st_mode):
                    raise InvalidInput(f"'{path}' is not a folder. Name the folder that it lies in.")
                refuse_synthetic(found, path)
                return os.open(".", FOLDER, dir_fd=found)
        finally:
            os.close(found)

    def regular(self, path: CanonicalPath) -> int:
        """A regular file, open for reading. The caller closes it.

        Never waits, and does not disturb a device: the object is opened only when it is known to be a file.

        Raises:
            NotFound, Denied: it is not there, or not for reading.
            InvalidInput: it is no regular file.
        """
        found = self._reach(path)
        try:
            with explained(path, self.roots):
                refuse_special(os.fstat(found).st_mode, path)
                refuse_synthetic(found, path)
                return self._setup.engine.readable(found)
        finally:
            os.close(found)

    def place(self, path: CanonicalPath) -> Place:
        """Where a file may be written.

        Raises:
            Denied: nowhere; it is hidden or protected, or may only be read.
        """
        root, inner = self._split(path)
        if not root.writable:
            raise Denied(f"'{path}' belongs to the server and can only be read. Write inside the workspace.")
        self._refuse_hidden(path)
        if inner == ".":
            raise InvalidInput(f"'{path}' is a folder, not a file. Name a file in it.")
        if why := self._setup.protects(root.at(inner)):
            raise Denied(f"'{path}' {why}")
        folder, _, name = inner.rpartition("/")
        return Place(engine=self._setup.engine, root=root, folder=folder or ".", name=name)

    def files(self, *, write: bool, size_limit: int = SIZE_LIMIT) -> Files:
        """The files of this workspace, as a capability; for reading only unless `write`."""
        setup = self._setup
        return ConfinedFiles(self, locks=setup.locks, size_limit=size_limit, write=write)

    def _split(self, path: str) -> tuple[Root, str]:
        """The root that `path` names, by its letters, and the rest. Raises: Denied: none."""
        if not self._held:
            raise self._nowhere(path)
        if not path.startswith("/"):
            return self._held[0], path
        flat = f"/{path.lstrip('/')}"
        found = [
            (len(prefix), root, inner)
            for root in self._openable()
            for prefix in root.prefixes
            if (inner := below(prefix, flat)) is not None
        ]
        if not found:
            raise outside(path, self.roots)
        _, root, inner = max(found, key=lambda candidate: candidate[0])
        return root, inner

    def _nowhere(self, path: str) -> Denied:
        return outside(path, ())

    def _spelt(self, absolute: str) -> CanonicalPath:
        own = self._own()
        relative = None if own and below(own.path, absolute) else below(self._held[0].path, absolute)
        spelt = absolute if relative is None else relative
        if not spelt.isprintable():
            _lexical(spelt)
        return CanonicalPath(spelt)

    def _reach(self, path: CanonicalPath) -> int:
        """A descriptor of what lies at `path`, and nowhere else. Whoever gets it closes it."""
        root, inner = self._split(path)
        self._refuse_hidden(path)
        try:
            with explained(path, self.roots):
                return self._setup.engine.exact(root.fd, inner)
        except Elsewhere:
            # Decided on was `path`. What has been swapped in may be hidden, or need another decision.
            raise Conflict(
                f"'{path}' became a link or was moved while it was being opened. Try again."
            ) from None

    def _refuse_hidden(self, path: CanonicalPath) -> None:
        if self.is_hidden(path):
            raise Denied(
                f"'{path}' is hidden by a rule of the operator; it can be neither read nor changed. Go on "
                "without it."
            )

    def _openable(self) -> tuple[Root, ...]:
        own = self._own()
        return (*self._held, own) if own else self._held

    def _own(self) -> Root | None:
        """The server's own readable folder, once there is one."""
        given = self._setup.readable()
        if given is None:
            return None
        if self._reading is None or given not in self._reading.prefixes:
            try:
                self._reading = reading(given)
            except OSError:
                return None
        return self._reading

    def _parts(self, given: str) -> list[Root]:
        """The parts of the roots that lie in the folder `given`, or that it lies in."""
        real = os.path.realpath(given)
        parts: list[Root] = []
        for root in self._held:
            inner = below(root.path, real)
            if inner is None and below(real, root.path):
                parts.append(root)
            elif inner is not None and (found := self._folder_in(root, inner)) is not None:
                parts.append(narrowed(root, found, given))
        return parts

    def _folder_in(self, root: Root, inner: str) -> Reached | None:
        try:
            found = self._setup.engine.reach(root.fd, inner)
        except (OSError, Escape):
            return None
        if stat.S_ISDIR(os.fstat(found.fd).st_mode):
            return found
        os.close(found.fd)
        return None


class _View(Workspace):
    """A part of a workspace, with the locks of the whole."""

    def __init__(self, held: tuple[Root, ...], setup: _Setup) -> None:
        self._setup = setup
        self._held = held
        self._views = {}
        self._reading = None

    def _nowhere(self, path: str) -> Denied:
        return Denied(
            f"'{path}' cannot be used: no folder that the client works in lies inside the roots of this "
            "server. Ask the user to open a folder inside them, or to start the server with another root."
        )


def _root(given: str) -> Root:
    try:
        return configured(given)
    except OSError:
        raise SettingsError(f"--root {given}: not a folder that can be opened.") from None


def _lexical(path: str) -> None:
    try:
        lexical(path)
    except ValueError as error:
        raise InvalidInput(f"The path, or what it leads to, cannot be used: {error}.") from None
    if apply() and (why := windows_refusal(path)):
        raise InvalidInput(f"The path cannot be used: {why}.")
