"""Opens paths inside a folder so that nothing leads out of it, not even a link that is replaced meanwhile.

Two resolvers with the same results: `Walk` opens one component at a time and never lets the kernel follow a
link, `Openat2` lets the Linux kernel resolve the whole path. Neither checks first and opens afterwards.

A volume may find one file by several names. `Walk` returns the one that the folder stores, so that each file
has one canonical path. `Openat2` is for folders where names are compared exactly.
"""

import errno
import os
import re
import stat
from dataclasses import dataclass
from functools import cache

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.runtime.files.libc import openat2
from mcp_toolserver.runtime.files.volume import name_comparison, stored_name
from mcp_toolserver.text.file_names import EXACT, NameComparison

_MAX_LINKS = 40
"""As many as the kernel follows in one path."""

_MAX_DEPTH = 256
"""Folders that one walk keeps open; deeper trees would exhaust the descriptors."""

_PATH_ONLY: int = getattr(os, "O_PATH", 0)
"""Opens an object without reading it, so that a device or FIFO does not notice. Linux only."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder for listing, or for fsync."""

HOLD = (_PATH_ONLY or os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to hold a folder that paths are opened relative to."""


class Escape(Exception):
    """The path leads out of the folder."""

    def __init__(self, link: str = "", target: str = "") -> None:
        super().__init__("the path leads out of the folder")
        self.link = link
        """The absolute link on the way, when there is one: such a link counts as leading out."""
        self.target = target


class ParentOfMissing(Exception):
    """The path contains `..` after a name that does not exist."""


class PathMoved(Exception):
    """The path is not the canonical path of the object: it contains a link or `..`."""


@dataclass(frozen=True, kw_only=True)
class ResolvedPath:
    """An object inside a folder. The caller closes `fd`."""

    fd: int
    relative: str
    """The canonical path relative to the folder: no links, no `..`, names as they are stored; `.` is the
    folder itself."""
    comparison: NameComparison = EXACT
    """How names are compared where the object lies."""


class Walk:
    """Opens paths inside a folder, one component at a time (any POSIX system).

    All methods raise `Escape` for a path that leads out, and `OSError` as `open` does.
    """

    def __init__(self, *, proc: bool | None = None) -> None:
        self._proc = _has_proc() if proc is None else proc

    def resolve(self, folder: int, path: str) -> ResolvedPath:
        """Resolve `path` relative to the folder open as `folder`, without opening the object for reading."""
        with _Steps(folder, path) as steps:
            fd = steps.run(_PATH_ONLY if self._proc else _READ)
            return ResolvedPath(fd=fd, relative=_joined(steps.names), comparison=steps.comparison)

    def open_exact(self, folder: int, path: str) -> int:
        """Open the object as `resolve` does, if `path` is canonical: no link, no `..`.

        Raises:
            PathMoved: it is not canonical.
        """
        try:
            found = Walk.resolve(self, folder, path)
        except Escape:
            raise PathMoved from None
        if found.relative != path:
            os.close(found.fd)
            raise PathMoved
        return found.fd

    def readable(self, fd: int) -> int:
        """Reopen the descriptor of `resolve` for reading; never waits for a writer."""
        # Without /proc a descriptor cannot be opened again, so there `resolve` has opened it for reading.
        return os.open(f"/proc/self/fd/{fd}", _READ) if self._proc else os.dup(fd)


class Openat2(Walk):
    """Lets the kernel resolve (Linux 5.6 and later, with /proc mounted); walks where a path leads to another
    mount."""

    def resolve(self, folder: int, path: str) -> ResolvedPath:
        try:
            fd = openat2(folder, path, _PATH_ONLY)
        except OSError as error:
            # A link of /proc that jumps gives ELOOP, before the kernel can see that it leads out.
            if error.errno in (errno.EXDEV, errno.ELOOP):
                return super().resolve(folder, path)
            raise
        try:
            return ResolvedPath(fd=fd, relative=_relative(folder, fd))
        except BaseException:
            os.close(fd)
            raise

    def open_exact(self, folder: int, path: str) -> int:
        if os.path.normpath(path) != path:
            raise PathMoved
        try:
            return openat2(folder, path, _PATH_ONLY, links=False)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return super().open_exact(folder, path)
            if error.errno == errno.ELOOP:
                raise PathMoved from None
            raise


class _Steps:
    """One walk: the folders on the way, and the components still to go.

    `..` returns to a descriptor that is already open, so a rename cannot redirect it.
    """

    def __init__(self, folder: int, path: str) -> None:
        if path.startswith("/"):
            raise Escape
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self.names: list[str] = []
        self.name = "."
        """The component being opened."""
        self.todo = _components(path)
        self._links = 0
        self._folders = [os.dup(folder)]
        self._devices = [os.fstat(folder).st_dev]
        self._comparisons = [name_comparison(folder)]

    def __enter__(self) -> "_Steps":
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._folders:
            os.close(fd)

    @property
    def comparison(self) -> NameComparison:
        """How names are compared in the folder that was reached last."""
        return self._comparisons[-1]

    def run(self, flags: int) -> int:
        while self.todo:
            self.name = self.todo.pop()
            if self.name == "..":
                self._up()
            elif self.name == ".":
                continue
            elif (target := self._link()) is not None:
                self._follow(target)
            elif self.todo:
                self._down()
            else:
                return self._last(flags)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=self._folders[-1])

    def _link(self) -> str | None:
        try:
            return os.readlink(self.name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _up(self) -> None:
        if not self.names:
            raise Escape
        for pile in (self.names, self._devices, self._comparisons):
            pile.pop()
        os.close(self._folders.pop())

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise _os_error(errno.ELOOP)
        if target.startswith("/"):
            raise Escape(_joined([*self.names, self.name]), target)
        self.todo += _components(target)

    def _down(self) -> None:
        if len(self._folders) > _MAX_DEPTH:
            raise _os_error(errno.ENAMETOOLONG)
        above = self._folders[-1]
        try:
            folder = os.open(self.name, HOLD | os.O_NOFOLLOW, dir_fd=above)
        except NotADirectoryError:
            now = os.stat(self.name, dir_fd=above, follow_symlinks=False).st_mode
            if stat.S_ISLNK(now) or stat.S_ISDIR(now):
                raise _os_error(_MOVED) from None
            raise
        self._folders.append(folder)
        name = self._stored(above, folder)
        device = os.fstat(folder).st_dev
        is_same = device == self._devices[-1]
        self._devices.append(device)
        self._comparisons.append(self.comparison if is_same else name_comparison(folder))
        self.names.append(name)

    def _last(self, flags: int) -> int:
        fd = os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folders[-1])
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise _os_error(_MOVED)
            self.names.append(self._stored(self._folders[-1], fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _stored(self, folder: int, fd: int) -> str:
        """The name that `folder`, the one reached last, stores for the object open as `fd`."""
        return self.name if self.comparison is EXACT else stored_name(folder, self.name, fd)


def locate(resolver: Walk, folder: int, path: str) -> tuple[str, NameComparison]:
    """The canonical path of `path`, existing or not, relative to `folder`, and how names are compared there.

    A dangling link leads to its target.

    Raises:
        Escape: if it leads out of the folder.
        ParentOfMissing: if it contains `..` after a name that does not exist.
        OSError: as for `open`.
    """
    try:
        found = resolver.resolve(folder, path)
    except FileNotFoundError:
        return _locate_missing(folder, path)
    os.close(found.fd)
    return found.relative, found.comparison


def _locate_missing(folder: int, path: str) -> tuple[str, NameComparison]:
    with _Steps(folder, path) as steps:
        try:
            os.close(steps.run(_PATH_ONLY or _READ))
        except FileNotFoundError:
            rest = [steps.name, *reversed(steps.todo)]
            if ".." in rest:
                raise ParentOfMissing from None
            return _joined([*steps.names, *(name for name in rest if name != ".")]), steps.comparison
        return _joined(steps.names), steps.comparison


@cache
def best_resolver() -> Walk:
    """The fastest resolver that works here, found by trying."""
    if not _has_proc():
        return Walk(proc=False)
    top = os.open("/", HOLD)
    try:
        os.close(openat2(top, ".", _PATH_ONLY))
    except OSError:
        return Walk()
    finally:
        os.close(top)
    return Openat2()


def _relative(folder: int, fd: int) -> str:
    top, real = os.readlink(f"/proc/self/fd/{folder}"), os.readlink(f"/proc/self/fd/{fd}")
    # A file may really have the name that the kernel gives to deleted ones.
    if real.endswith(" (deleted)") and not is_open_as(real, fd, follow_symlinks=False):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    relative = relative_to(top, real)
    if relative is None:
        raise Escape
    return relative


def is_open_as(path: str, fd: int, *, follow_symlinks: bool = True) -> bool:
    """Whether the absolute `path` leads to the object open as `fd`."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=follow_symlinks), os.fstat(fd))
    except OSError:
        return False


@cache
def _has_proc() -> bool:
    """Whether /proc/self/fd gives the paths of descriptors."""
    if not _PATH_ONLY:
        return False
    top = os.open("/", HOLD)
    try:
        return os.readlink(f"/proc/self/fd/{top}") == "/"
    except OSError:
        return False
    finally:
        os.close(top)


def relative_to(folder: str, path: str) -> str | None:
    """`path` relative to `folder`, compared as text: `.` for the folder itself, None if it is not inside."""
    if path == folder:
        return "."
    start = folder if folder.endswith("/") else f"{folder}/"
    return (path[len(start) :].lstrip("/") or ".") if path.startswith(start) else None


_MOVED = errno.EAGAIN
"""The error for a folder that has become a link, or the reverse, during the walk."""


def _os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _components(path: str) -> list[str]:
    """Last first. A slash at the end counts as `.`, which only a folder has."""
    *parts, last = path.split("/")
    return [last or ".", *(part for part in reversed(parts) if part)]


def _joined(names: list[str]) -> str:
    return "/".join(names) or "."


_UNSHOWABLE = re.compile("[\0-\x1f\x7f\ud800-\udfff]")


def inside(folder: str, name: str) -> CanonicalPath:
    if folder == ".":
        return CanonicalPath(name)
    return CanonicalPath(f"/{name}" if folder == "/" else f"{folder}/{name}")


def parent(path: str) -> CanonicalPath:
    return CanonicalPath(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))


def showable(path: str) -> str:
    """A path on one line. Control characters are escaped, so that no name can imitate another line."""
    if path.isascii() and path.isprintable():
        return path
    return _UNSHOWABLE.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", path)
