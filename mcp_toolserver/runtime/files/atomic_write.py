"""Replaces files atomically: a reader, or a crash, sees the old content or the new one, never a part.

The new content is written to a temporary file with an unguessable name in the same folder, and renamed over
the file. All steps are relative to an open folder, so that nobody can redirect them.
"""

import os
import secrets
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.runtime.files.libc import copy_attributes, rename_new
from mcp_toolserver.runtime.files.path_resolver import FOLDER, Escape, PathResolver, ResolvedPath
from mcp_toolserver.stores.durable import sync

_PREFIX, _SUFFIX = ".mcp-toolserver-", ".tmp"

_PERMISSION_BITS = 0o1777
"""A change of content clears set-user-ID and set-group-ID, as a write in place does."""

_BOUND_TO_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
"""Attributes that vouch for the old content."""


class Recording(Protocol):
    """Records the temporary files of this process, so that another can remove them if it is killed."""

    def temporary(self, folder: int, name: str) -> AbstractContextManager[None]:
        """Record that `name` may exist in the open `folder`, until the body ends."""
        ...


FileId = tuple[int, ...]
"""Identifies a file with its content; see `file_id`."""


class Changed(Exception):
    """The file is not the one that was read."""


@dataclass(frozen=True, kw_only=True)
class Original:
    """The file to replace, as it was read."""

    fd: int
    status: os.stat_result

    @property
    def id(self) -> FileId:
        """Identifies the file with the content that was read."""
        return file_id(self.status)

    def check(self, folder: int, name: str) -> None:
        """Raises: Changed: it no longer has its name, or other content."""
        try:
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise Changed from None
        if file_id(now) != self.id:
            raise Changed


def file_id(status: os.stat_result) -> FileId:
    """Identifies a file with its content. The inode number alone is not enough, because it can be reused."""
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def replace(
    folder: int, name: str, content: bytes, old: Original | None, recording: Recording | None = None
) -> FileId:
    """Put `content` under `name` in the open `folder`, in place of `old`, or new when that is None.

    Returns what identifies the new file.

    Mode bits, and as far as permitted owner and extended attributes, stay. Other hard links of the file keep
    the old content. Whatever is raised, the file is as it was.

    Raises:
        Changed: `old` is not what the folder holds under `name` now, or a new file exists already.
    """
    with temp_file(folder, content, old, recording=recording) as temporary:
        new = file_id(os.stat(temporary, dir_fd=folder, follow_symlinks=False))
        _put(folder, temporary, name, old)
    with suppress(OSError):  # the content is in place; an error now would say that it is not
        sync(folder)
    return new


@contextmanager
def temp_file(
    folder: int,
    content: bytes,
    like: Original | None,
    *,
    executable: bool | None = None,
    recording: Recording | None = None,
) -> Generator[str]:
    """A new, synced file with `content` under a temporary name in the open `folder`; the body renames it.

    It gets the metadata of `like`, or that of any new file. It is removed when the body fails. If this
    process is killed meanwhile, it stays, and its record too.
    """
    temporary = f"{_PREFIX}{secrets.token_hex(16)}{_SUFFIX}"
    recorded = recording.temporary(folder, temporary) if recording is not None else nullcontext()
    with recorded, _filled(folder, temporary, content, like, executable):
        yield temporary


@contextmanager
def _filled(
    folder: int, temporary: str, content: bytes, like: Original | None, executable: bool | None
) -> Generator[None]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        try:
            _fill(fd, content)
            if like is not None:
                _keep_metadata(fd, like)
            if executable is not None:
                _let_run(fd, executable)
            sync(fd)
        finally:
            os.close(fd)
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def backup_name() -> str:
    """A name for the old content of a file that is being changed.

    It may be the only copy of that content, so only the process that made it removes it.
    """
    return f"{_PREFIX}{secrets.token_hex(16)}.old"


def _let_run(fd: int, executable: bool) -> None:
    """Make it executable for everyone who may read it, or for nobody."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    os.fchmod(fd, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)


def _fill(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _keep_metadata(fd: int, old: Original) -> None:
    with suppress(OSError):
        os.fchown(fd, old.status.st_uid, old.status.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.status.st_mode) & _PERMISSION_BITS)
    if sys.platform == "darwin":
        with suppress(OSError):
            copy_attributes(old.fd, fd)
        return
    with suppress(OSError):
        for name in set(os.listxattr(old.fd)) - _BOUND_TO_CONTENT:
            with suppress(OSError):
                os.setxattr(fd, name, os.getxattr(old.fd, name))


def _put(folder: int, temporary: str, name: str, old: Original | None) -> None:
    if old is None:
        try:
            rename_new(folder, temporary, name)
        except FileExistsError:
            raise Changed from None
        return
    old.check(folder, name)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def folder_to_write(resolver: PathResolver, root: int, relative: str) -> Generator[int]:
    """The folder at `inner` below `root`, open, and made with its parents where missing.

    New folders are removed when the body fails.

    Raises:
        Changed: a part of `inner` is a link, so that the folder lies elsewhere.
    """
    parts = [] if relative == "." else relative.split("/")
    with ExitStack() as closing:
        found, missing = _deepest(resolver, root, parts)
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
                sync(parent)


def _deepest(resolver: PathResolver, root: int, parts: Sequence[str]) -> tuple[ResolvedPath, Sequence[str]]:
    """The deepest folder that exists, and the names of those still missing in it."""
    for count in range(len(parts), 0, -1):
        relative = "/".join(parts[:count])
        try:
            found = resolver.resolve(root, relative)
        except FileNotFoundError:
            continue
        except Escape:
            raise Changed from None
        if found.relative == relative:
            return found, parts[count:]
        os.close(found.fd)
        raise Changed
    return resolver.resolve(root, "."), parts


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
