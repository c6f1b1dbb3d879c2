"""The workspace's SQLite database in the state folder, created when first needed.

A change is one transaction in a worker thread. Changes are serialized within this process and across all
servers of the workspace. A damaged file is renamed, and a new one is created.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, to_thread

from mcp_toolserver.errors import Conflict, Unavailable
from mcp_toolserver.stores.file_lock import ServerLiveness, locked
from mcp_toolserver.stores.state_dir import CREATE, OPEN_FOLDER, private_folder

if TYPE_CHECKING:
    import sqlite3
    from sqlite3 import Connection as Connection
else:
    # `sqlite3` is imported with the first use of a database.
    Connection = object

T = TypeVar("T")

FOLDER = "workspaces"

_BUSY_TIMEOUT_SECONDS = 5.0
"""How long a change waits for other servers."""

# The server may write only to its state folder, so there must be no temporary files. A single file with a
# rollback journal works on every file system; a shared-memory file does not.
# `fullfsync` means macOS only, and `checkpoint_fullfsync` only databases with a write-ahead log
# (https://www.sqlite.org/pragma.html#pragma_fullfsync); see `disk.py`.
_SETUP = "PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF; PRAGMA fullfsync=ON"

_Identity = tuple[int, int]


class _Damaged(Exception):
    """The file is not a valid database."""


class Database:
    """The database of the workspace with these roots, or one with a `name` for all workspaces."""

    def __init__(self, state: str, roots: Sequence[str], *, name: str = "") -> None:
        self._state = state
        digest = hashlib.sha256("\0".join(sorted(roots)).encode(errors="surrogateescape"))
        name = name or digest.hexdigest()[:32]
        self.path = f"{state}/{FOLDER}/{name}.sqlite3"
        self.server = ServerLiveness(f"{self.path}.server-")
        """This server, in all tables with work that ends with its server."""
        self._open: Connection | None = None
        self._identity: _Identity | None = None
        self._lock = Lock()
        # Changes are serial, so more threads would only wait and occupy the shared pool.
        self._thread = CapacityLimiter(1)
        self._closed = False

    async def run(self, work: Callable[[Connection], T], tables: Sequence[str] = ()) -> T:
        """Run `work` as one transaction, rolled back if it raises; `tables` create what it needs, and add
        the columns that later versions brought.

        Raises:
            Conflict: another server held the database for seconds.
            Unavailable: the file is damaged, or cannot be read or written.
        """

        def prepared(database: Connection) -> T:
            for statement in tables:
                _create_part(database, statement)
            return work(database)

        return await to_thread.run_sync(self._run, prepared, limiter=self._thread)

    async def rows(self, statement: str, values: Sequence[object], tables: Sequence[str] = ()) -> list[Any]:
        """Run one statement as `run` does, and return the rows that it gives. Raises: as `run`."""
        return await self.run(lambda database: database.execute(statement, values).fetchall(), tables)

    def close(self) -> None:
        """Close the database for good."""
        with self._lock:
            self._closed = True
            self.server.release()
            self._close_connection()

    def _run(self, work: Callable[[Connection], T]) -> T:
        import sqlite3

        with self._lock:
            if self._closed:
                raise Unavailable("The server is shutting down.")
            try:
                with self._connection() as database:
                    database.execute("BEGIN IMMEDIATE")
                    return work(database)
            except sqlite3.OperationalError as error:
                raise _refusal(error) from None
            except OSError as error:
                raise _unusable(error.strerror or "it is in use") from None
            except (_Damaged, sqlite3.DatabaseError) as error:
                # Subclasses are bugs in this program and are raised.
                if type(error) not in (_Damaged, sqlite3.DatabaseError):
                    raise
                raise self._set_aside() from None

    def _connection(self) -> Connection:
        """Return the connection; reconnect if the file was replaced."""
        import sqlite3

        if self._open is not None and self._identity == _identity(self.path):
            return self._open
        self._close_connection()
        private_folder(self._state, FOLDER)
        _create(self.path)
        self._identity = _identity(self.path)
        opened = sqlite3.connect(
            self.path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            opened.executescript(_SETUP)
            if opened.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise _Damaged
        except BaseException:
            opened.close()
            raise
        # A row is a mapping of its columns, and a sequence.
        opened.row_factory = sqlite3.Row
        self._open = opened
        return opened

    def _close_connection(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def _set_aside(self) -> Unavailable:
        """Rename the damaged file and its journal, unless another server has already."""
        damaged, self._identity = self._identity, None
        self._close_connection()
        aside = f"{self.path}.damaged-{secrets.token_hex(4)}"
        try:
            with ExitStack() as stack:
                folder = os.open(os.path.dirname(self.path), OPEN_FOLDER)
                stack.callback(os.close, folder)
                # No other server renames files meanwhile.
                stack.enter_context(locked(folder))
                if _identity(self.path) == damaged:
                    for end in ("-journal", ""):
                        with suppress(FileNotFoundError):
                            os.rename(self.path + end, aside + end)
        except OSError as error:
            return _unusable(error.strerror or "it is in use")
        return Unavailable(
            "The stored state of this workspace is damaged and cannot be read. Nothing was removed: the "
            f"operator can find the file as {FOLDER}/{os.path.basename(aside)} in the server's state folder. "
            "The next call starts with an empty state."
        )


def _create_part(database: Connection, statement: str) -> None:
    import sqlite3

    try:
        database.execute(statement)
    except sqlite3.OperationalError as error:
        if "duplicate column name" not in str(error):
            raise


def _create(path: str) -> None:
    """Create a private file. An existing one stays closed: closing it would release SQLite's locks."""
    try:
        os.close(os.open(path, CREATE, 0o600))
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(None, "it is not a regular file of this user") from None


def _identity(path: str) -> _Identity | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


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
        "operator has to check the server's state folder."
    )
