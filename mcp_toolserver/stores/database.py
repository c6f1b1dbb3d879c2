"""What outlives the server, of one workspace: a SQLite file in the state folder, made when first needed.

A change is one transaction, in a worker thread. Changes are serial in this process and across all servers of
the workspace. A file that was damaged is put aside whole, under another name, and a new one is begun.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from mcp_toolserver.errors import Conflict, Unavailable
from mcp_toolserver.stores.folder import private_folder
from mcp_toolserver.stores.lock import FileLock

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

FOLDER = "workspaces"

_PATIENCE_SECONDS = 5.0
"""How long a change waits for those of other servers."""

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# The server may write nowhere but in its state folder, so nothing may go to a folder for temporary files. One
# file with a rollback journal is right on every file system; a shared-memory file is not.
_SETUP = "PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF"

_Identity = tuple[int, int]


class _Damaged(Exception):
    """What is in the file is no database, or not a whole one."""


class Database:
    """The file of the workspace whose roots are `roots`."""

    def __init__(self, state: str, roots: Sequence[str]) -> None:
        self._state = state
        name = hashlib.sha256("\0".join(sorted(roots)).encode(errors="surrogateescape")).hexdigest()[:32]
        self.path = f"{state}/{FOLDER}/{name}.sqlite3"
        self._open: sqlite3.Connection | None = None
        self._identity: _Identity | None = None
        self._turn = Lock()
        self._closed = False

    async def run(self, work: "Callable[[sqlite3.Connection], T]") -> T:
        """Do `work` as one transaction: all of it, or nothing when it raises.

        Raises:
            Conflict: another server was in the way for seconds.
            Unavailable: the file cannot be read or written, or was damaged.
        """
        return await to_thread.run_sync(self._run, work)

    def close(self) -> None:
        """Nothing can be read or changed afterwards."""
        with self._turn:
            self._closed = True
            self._leave()

    def _run(self, work: "Callable[[sqlite3.Connection], T]") -> T:
        import sqlite3

        with self._turn:
            if self._closed:
                raise Unavailable("The server is ending; its state is closed.")
            try:
                return _transaction(self._connection(), work)
            except sqlite3.OperationalError as error:
                raise _refusal(error) from None
            except OSError as error:
                raise _unusable(error.strerror or "it is in use") from None
            except (_Damaged, sqlite3.DatabaseError) as error:
                # Mistakes of ours are subclasses, which are left to be found.
                if type(error) not in (_Damaged, sqlite3.DatabaseError):
                    raise
                raise self._set_aside() from None

    def _connection(self) -> "sqlite3.Connection":
        """The file, open; opened anew when another one lies in its place."""
        if self._open is not None and self._identity == _identity(self.path):
            return self._open
        self._leave()
        private_folder(self._state, FOLDER)
        _create(self.path)
        self._identity = _identity(self.path)
        opened = _opened(self.path)
        try:
            _check(opened)
        except BaseException:
            opened.close()
            raise
        self._open = opened
        return opened

    def _leave(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def _set_aside(self) -> Unavailable:
        """Rename the file, and its journal with it, unless another server has already."""
        damaged, self._identity = self._identity, None
        self._leave()
        aside = f"{self.path}.damaged-{secrets.token_hex(4)}"
        try:
            with _alone_in(os.path.dirname(self.path)):
                if _identity(self.path) == damaged:
                    for end in ("-journal", ""):
                        _rename(self.path + end, aside + end)
        except OSError as error:
            return _unusable(error.strerror or "it is in use")
        return Unavailable(
            "The stored state of this workspace is damaged and cannot be read. Nothing was removed: the "
            f"operator finds the file as {FOLDER}/{os.path.basename(aside)} in the server's state folder. "
            "The next call begins with an empty state."
        )


def _transaction(database: "sqlite3.Connection", work: "Callable[[sqlite3.Connection], T]") -> T:
    database.execute("BEGIN IMMEDIATE")
    try:
        result = work(database)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return result


def _create(path: str) -> None:
    """Have a private file there. One that exists is not opened: closing it would end SQLite's locks on it."""
    try:
        os.close(os.open(path, _CREATE, 0o600))
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(None, "it is no file of this user") from None


def _opened(path: str) -> "sqlite3.Connection":
    import sqlite3

    return sqlite3.connect(path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)


def _check(database: "sqlite3.Connection") -> None:
    database.executescript(_SETUP)
    if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise _Damaged


@contextmanager
def _alone_in(path: str) -> Generator[None]:
    """No other server puts anything aside in the folder `path` meanwhile. Raises: OSError."""
    folder = os.open(path, _OPEN_FOLDER)
    try:
        with FileLock(folder):
            yield
    finally:
        os.close(folder)


def _identity(path: str) -> _Identity | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _rename(old: str, new: str) -> None:
    if _identity(old) is not None:
        os.rename(old, new)


def _refusal(error: "sqlite3.OperationalError") -> Conflict | Unavailable:
    import sqlite3

    if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Conflict(
            "Another server is changing the state of this workspace. Nothing was changed; try again."
        )
    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
        return _unusable("the disk is full")
    return _unusable("SQLite cannot use the file")


def _unusable(why: str) -> Unavailable:
    return Unavailable(
        f"The stored state of this workspace cannot be read or written: {why}. Nothing was changed. The "
        "operator of this server has to look at its state folder."
    )
