"""Writes contents under temporary names, so that a reader, or a crash, sees the old content of a file or the
new one, never a part.

A temporary file has an unguessable name and lies in the folder of the file that it is to replace by a rename.
All steps are relative to an open folder, so that nobody can redirect them.
"""

import os
import secrets
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from mcp_toolserver.runtime.files.libc import copy_attributes
from mcp_toolserver.runtime.files.path_resolver import FOLDER, Escape, ResolvedPath, Walk
from mcp_toolserver.stores.durable import sync
from mcp_toolserver.stores.running_servers import RunningServer

_PREFIX, _SUFFIX = ".mcp-toolserver-", ".tmp"

_PERMISSION_BITS = 0o1777
"""A change of content clears set-user-ID and set-group-ID, as a write in place does."""

_BOUND_TO_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
"""Attributes that vouch for the old content."""

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


@contextmanager
def temp_file(
    folder: int,
    content: bytes,
    like: Original | None,
    *,
    executable: bool | None = None,
    recording: RunningServer | None = None,
) -> Generator[str]:
    """A new, synced file with `content` under a temporary name in the open `folder`; the body renames it.

    Mode bits, and as far as permitted owner and extended attributes, are those of `like`, or of any new file.
    It is removed when the body fails. If this process is killed meanwhile, it stays, and its record too.
    """
    temporary = f"{_PREFIX}{secrets.token_hex(16)}{_SUFFIX}"
    with recording.temporary(folder, temporary) if recording is not None else nullcontext():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o666 if like is None else 0o600, dir_fd=folder)
        try:
            try:
                _fill(fd, content, like, executable)
            finally:
                os.close(fd)
            yield temporary
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def backup_name() -> str:
    """A name for the old content of a file that is being changed.

    It may be the only copy of that content, so only the process that made it removes it.
    """
    return f"{_PREFIX}{secrets.token_hex(16)}.old"


def _fill(fd: int, content: bytes, like: Original | None, executable: bool | None) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
    if like is not None:
        _keep_metadata(fd, like)
    if executable is not None:
        # For everyone who may read it, or for nobody.
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        os.fchmod(fd, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)
    sync(fd)


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


@contextmanager
def folder_to_write(resolver: Walk, root: int, relative: str) -> Generator[int]:
    """The folder at `relative` below `root`, open, and made with its parents where missing.

    New folders are removed when the body fails.

    Raises:
        Changed: a part of `relative` is a link, so that the folder lies elsewhere.
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
            with suppress(OSError):  # the content is in place; an error now would say that it is not
                sync(parent)


def _deepest(resolver: Walk, root: int, parts: Sequence[str]) -> tuple[ResolvedPath, Sequence[str]]:
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
