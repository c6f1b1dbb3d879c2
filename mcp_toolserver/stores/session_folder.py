"""Manages the private folder of a running server inside the state folder.

Each server holds a lock on its folder. A killed server leaves its folder unlocked, and the next server
removes it.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from mcp_toolserver.stores.file_lock import is_locked, try_lock

_NAME = re.compile(r"[0-9a-f]{32}")
_NEW = ".new-"
"""Name prefix of a session folder until its lock is held, so that nobody removes it as abandoned."""

_ABANDONED_SECONDS = 60.0
"""Locking a new folder never takes this long."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class SessionFolder:
    """An open and locked session folder."""

    name: str
    sessions: int
    """Descriptor of the folder of all sessions."""
    outputs: int
    """Descriptor of the folder for saved outputs."""
    path: str
    """Absolute path of the folder for saved outputs."""
    closing: ExitStack

    def remove(self) -> None:
        """Remove the folder and its content."""
        shutil.rmtree(self.name, ignore_errors=True, dir_fd=self.sessions)
        self.closing.close()


def start_session(state_dir: str) -> SessionFolder:
    """Create a session folder in `state_dir`, an absolute path, and remove those of dead servers.

    Raises:
        OSError: the state folder is not writable or not private.
    """
    with ExitStack() as closing:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        state = _private_folder(state_dir, None, closing)
        sessions = _make_folder(state, "sessions", closing)
        _sweep(sessions)
        name = secrets.token_hex(16)
        session = _make_folder(sessions, _NEW + name, closing)
        _lock_folder(session, closing)
        outputs = _make_folder(session, "outputs", closing)
        os.rename(_NEW + name, name, src_dir_fd=sessions, dst_dir_fd=sessions)
        return SessionFolder(
            name=name,
            sessions=sessions,
            outputs=outputs,
            path=f"{state_dir}/sessions/{name}/outputs",
            closing=closing.pop_all(),
        )


def _make_folder(parent: int, name: str, closing: ExitStack) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    fd = _private_folder(name, parent, closing)
    if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
        os.fchmod(fd, 0o700)
    return fd


def _private_folder(path: str, parent: int | None, closing: ExitStack) -> int:
    """Open a folder. Raises: PermissionError: it is a link, not a folder, or owned by another user."""
    try:
        fd = os.open(path, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise PermissionError(f"the state folder {path} is a link or not a folder; remove it") from None
    closing.callback(os.close, fd)
    if os.fstat(fd).st_uid != os.geteuid():
        raise PermissionError(f"the state folder {path} belongs to another user; choose another --state-dir")
    return fd


def _lock_folder(session: int, closing: ExitStack) -> None:
    lock = os.open("lock", _CREATE, 0o600, dir_fd=session)
    closing.callback(os.close, lock)
    try_lock(lock)


def _sweep(sessions: int) -> None:
    """Remove the folders of dead servers. Links are neither followed nor removed."""
    for name in os.listdir(sessions):
        with suppress(OSError):
            if _is_abandoned(sessions, name):
                shutil.rmtree(name, ignore_errors=True, dir_fd=sessions)


def _is_abandoned(sessions: int, name: str) -> bool:
    status = os.stat(name, dir_fd=sessions, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return False
    if name.startswith(_NEW):
        return time.time() - status.st_mtime > _ABANDONED_SECONDS
    # A folder without a lock file was being removed when its server was killed.
    return _NAME.fullmatch(name) is not None and not is_locked(f"{name}/lock", dir_fd=sessions)
