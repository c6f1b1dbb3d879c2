"""Replacing a file whole: a reader, or a machine that stops, sees the old content or the new, never a part.

The new content is written beside the file, under a name nobody can guess, and renamed over it. All steps are
relative to a folder that is already open, so that nobody can redirect them.
"""

import os
import secrets
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from mcp_toolserver.runtime.beneath import FOLDER, Engine, Escape, Reached
from mcp_toolserver.runtime.libc import rename_new

_PREFIX, _SUFFIX = ".mcp-toolserver-", ".tmp"
_STALE_SECONDS = 60.0
_SWEPT_NAMES = 5_000
"""Names looked at for left-overs in one folder; a huge folder must not slow down every write."""

_PERMISSION_BITS = 0o1777
"""Set-user-ID and set-group-ID do not survive a change of content, as with a write in place."""

_BOUND_TO_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
"""Attributes that vouch for the old content."""


class Changed(Exception):
    """The file is not the one that was read."""


@dataclass(frozen=True, kw_only=True)
class Old:
    """The file to be replaced, as it was read."""

    fd: int
    status: os.stat_result

    def check(self, folder: int, name: str) -> None:
        """Raises: Changed: it no longer has its name, or other content."""
        try:
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise Changed from None
        if identity(now) != identity(self.status):
            raise Changed


def identity(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from others and from itself with other content; its number alone is used again."""
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def replace(folder: int, name: str, content: bytes, old: Old | None) -> None:
    """Put `content` under `name` in the open `folder`, in place of `old`, or new when that is None.

    Mode bits, and as far as permitted owner and extended attributes, stay. Other hard links of the file keep
    the old content. Whatever is raised, the file is as it was.

    Raises:
        Changed: `old` is not what the folder holds under `name` now, or a new file exists already.
    """
    with staged(folder, content, old) as temporary:
        _put(folder, temporary, name, old)
    with suppress(OSError):  # the content is in place; an error now would say that it is not
        os.fsync(folder)


@contextmanager
def staged(
    folder: int, content: bytes, like: Old | None, *, executable: bool | None = None
) -> Generator[str]:
    """A new, synced file with `content` under a temporary name in the open `folder`; the body renames it.

    It gets the metadata of `like`, or those of any new file. When the body fails it goes away again.
    """
    _sweep(folder)
    temporary = f"{_PREFIX}{secrets.token_hex(16)}{_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        try:
            _fill(fd, content)
            if like is not None:
                _keep_metadata(fd, like)
            if executable is not None:
                _let_run(fd, executable)
            os.fsync(fd)
        finally:
            os.close(fd)
        yield temporary
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def backup_name() -> str:
    """A name for the old content of a file that is being changed; unlike a temporary one it is not swept."""
    return f"{_PREFIX}{secrets.token_hex(16)}.old"


def _let_run(fd: int, executable: bool) -> None:
    """Whoever may read it may run it, or nobody."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    os.fchmod(fd, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)


def _fill(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _keep_metadata(fd: int, old: Old) -> None:
    with suppress(OSError):
        os.fchown(fd, old.status.st_uid, old.status.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.status.st_mode) & _PERMISSION_BITS)
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        for name in set(os.listxattr(old.fd)) - _BOUND_TO_CONTENT:
            with suppress(OSError):
                os.setxattr(fd, name, os.getxattr(old.fd, name))


def _put(folder: int, temporary: str, name: str, old: Old | None) -> None:
    if old is None:
        try:
            rename_new(folder, temporary, name)
        except FileExistsError:
            raise Changed from None
        return
    old.check(folder, name)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _sweep(folder: int) -> None:
    """Remove what writers that were killed left behind."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _SWEPT_NAMES) if _is_temporary(entry.name)]
    for name in names:
        with suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _STALE_SECONDS:
                os.unlink(name, dir_fd=folder)


def _is_temporary(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


@contextmanager
def folder_to_write(engine: Engine, root: int, inner: str) -> Generator[int]:
    """The folder at `inner` beneath `root`, open, and made with its parents where missing.

    What was made goes away again when the body fails.

    Raises:
        Changed: a part of `inner` is a link, so that the folder lies elsewhere.
    """
    parts = [] if inner == "." else inner.split("/")
    with ExitStack() as closing:
        found, missing = _deepest(engine, root, parts)
        closing.callback(os.close, found.fd)
        folder = os.open(".", FOLDER, dir_fd=found.fd)
        closing.callback(os.close, folder)
        made: list[tuple[int, str]] = []
        try:
            for name in missing:
                folder = _made(folder, name, made)
                closing.callback(os.close, folder)
            yield folder
        except BaseException:
            for parent, name in reversed(made):
                with suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
            raise
        for parent, _ in made:
            with suppress(OSError):  # as in `replace`
                os.fsync(parent)


def _deepest(engine: Engine, root: int, parts: Sequence[str]) -> tuple[Reached, Sequence[str]]:
    """The deepest folder that exists, and the names still missing beneath it."""
    for count in range(len(parts), 0, -1):
        inner = "/".join(parts[:count])
        try:
            found = engine.reach(root, inner)
        except FileNotFoundError:
            continue
        except Escape:
            raise Changed from None
        if found.inner == inner:
            return found, parts[count:]
        os.close(found.fd)
        raise Changed
    return engine.reach(root, "."), parts


def _made(folder: int, name: str, made: list[tuple[int, str]]) -> int:
    try:
        os.mkdir(name, dir_fd=folder)
        made.append((folder, name))
    except FileExistsError:
        pass  # by somebody else, meanwhile; a link is refused below
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        raise Changed from None
