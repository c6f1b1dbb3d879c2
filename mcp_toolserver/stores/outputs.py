"""Results too long to send, kept in a private folder for as long as the server runs.

Each server has a session folder of its own, which it holds a lock on. A server that was killed leaves its
folder behind unlocked, and the next one removes it.
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
from threading import Lock

from anyio import to_thread

from mcp_toolserver.capabilities.calls import Spill
from mcp_toolserver.errors import NotFound

_HANDLE = re.compile(r"[0-9a-f]{32}")
_SUFFIX = ".txt"
_NEW = ".new-"
"""Starts the name of a session folder until its lock is held, so that nobody takes it for abandoned."""

_ABANDONED_SECONDS = 60.0
"""Nobody takes that long to lock a new folder."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class _Session:
    name: str
    sessions: int
    """The folder of all sessions, open."""
    outputs: int
    """Our folder for outputs, open."""
    path: str
    """The absolute path of the latter."""
    closing: ExitStack


class Outputs:
    """Long texts by unguessable handle. Nothing is created before the first."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = os.path.abspath(state_dir)
        self._session: _Session | None = None
        self._closed = False
        self._starting = Lock()

    def folder(self) -> str | None:
        """The absolute path of the folder that holds the texts, once there is one."""
        return self._session.path if self._session else None

    def create(self) -> tuple[str, str, int]:
        """A new, empty text: its handle, absolute path, and a descriptor to write it that the caller closes.

        Raises:
            OSError: the state folder cannot be written, or is not private.
        """
        session = self._open_session()
        handle = secrets.token_hex(16)
        name = handle + _SUFFIX
        fd = os.open(name, _CREATE, 0o600, dir_fd=session.outputs)
        return handle, f"{session.path}/{name}", fd

    async def spill(self, text: str) -> Spill:
        """Keep `text`. Raises: OSError: as for `create`."""
        return await to_thread.run_sync(self._spill, text)

    async def read(self, handle: str, limit: int) -> bytes:
        """The whole text. Raises: NotFound: no such handle, or more than `limit` bytes."""
        return await to_thread.run_sync(self._read, handle, limit)

    def close(self) -> None:
        """Remove everything; nothing can be kept afterwards."""
        with self._starting:
            self._closed = True
            session, self._session = self._session, None
        if session is not None:
            shutil.rmtree(session.name, ignore_errors=True, dir_fd=session.sessions)
            session.closing.close()

    def _spill(self, text: str) -> Spill:
        handle, path, fd = self.create()
        content = text.encode(errors="replace")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
        except OSError:
            with suppress(OSError):
                os.unlink(path)
            raise
        return Spill(handle=handle, path=path, size=len(content))

    def _read(self, handle: str, limit: int) -> bytes:
        missing = NotFound("There is no such output. Outputs are removed when the server ends.")
        if self._session is None or not _HANDLE.fullmatch(handle):
            raise missing
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(handle + _SUFFIX, flags, dir_fd=self._session.outputs)
        except OSError:
            raise missing from None
        with os.fdopen(fd, "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise NotFound("The output is too long to be read at once. Read it in parts with read_file.")
        return content

    def _open_session(self) -> _Session:
        with self._starting:
            if self._closed:
                raise OSError("the outputs are closed")
            if self._session is None:
                self._session = _started(self._state_dir)
            return self._session


def _started(state_dir: str) -> _Session:
    with ExitStack() as closing:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        state = _private_folder(state_dir, None, closing)
        sessions = _made(state, "sessions", closing)
        _sweep(sessions)
        name = secrets.token_hex(16)
        session = _made(sessions, _NEW + name, closing)
        _locked(session, closing)
        outputs = _made(session, "outputs", closing)
        os.rename(_NEW + name, name, src_dir_fd=sessions, dst_dir_fd=sessions)
        return _Session(
            name=name,
            sessions=sessions,
            outputs=outputs,
            path=f"{state_dir}/sessions/{name}/outputs",
            closing=closing.pop_all(),
        )


def _made(parent: int, name: str, closing: ExitStack) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    fd = _private_folder(name, parent, closing)
    if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
        os.fchmod(fd, 0o700)
    return fd


def _private_folder(path: str, parent: int | None, closing: ExitStack) -> int:
    """The folder, open. Raises: PermissionError: it is a link, no folder, or somebody else's."""
    try:
        fd = os.open(path, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise PermissionError(f"the state folder {path} is a link or no folder; remove it") from None
    closing.callback(os.close, fd)
    if os.fstat(fd).st_uid != os.geteuid():
        raise PermissionError(f"the state folder {path} belongs to another user; choose another --state-dir")
    return fd


def _locked(session: int, closing: ExitStack) -> None:
    lock = os.open("lock", _CREATE, 0o600, dir_fd=session)
    closing.callback(os.close, lock)
    _is_taken(lock)


def _sweep(sessions: int) -> None:
    """Remove the folders of servers that are gone. Links are neither followed nor removed."""
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
    return _HANDLE.fullmatch(name) is not None and not _is_locked(sessions, name)


def _is_locked(sessions: int, name: str) -> bool:
    """A folder without a lock belongs to a server that was killed while it removed the folder."""
    try:
        lock = os.open(
            f"{name}/lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=sessions
        )
    except FileNotFoundError:
        return False
    try:
        return not _is_taken(lock)
    finally:
        os.close(lock)


def _is_taken(lock: int) -> bool:
    """Take the lock; false when somebody else holds it, or may, because this platform has no such locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
