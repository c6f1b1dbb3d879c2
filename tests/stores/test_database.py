"""State that outlives the server: private, serial, and never lost."""

import fcntl
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from mcp_toolserver.errors import Conflict, NotFound, Unavailable
from mcp_toolserver.stores.database import FOLDER, Database
from tests.plan.planning import database

Work = Callable[[sqlite3.Connection], object]


def counted(connection: sqlite3.Connection) -> int:
    """Counts its own calls, in two steps that another one must not come between."""
    connection.execute("CREATE TABLE IF NOT EXISTS counter (value INTEGER)")
    (value,) = connection.execute("SELECT coalesce(max(value), 0) FROM counter").fetchone()
    connection.execute("INSERT INTO counter VALUES (?)", (value + 1,))
    return value + 1


async def test_nothing_is_created_before_the_first_use(tmp_path: Path) -> None:
    made = database(tmp_path)
    made.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(Unavailable, match="shutting down"):
        await made.run(counted)
    assert os.listdir(tmp_path) == []


async def test_the_file_is_private_and_no_other_is_left(tmp_path: Path) -> None:
    made = database(tmp_path)
    umask = os.umask(0)
    try:
        await made.run(counted)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state" / FOLDER).stat().st_mode) == 0o700
    assert os.listdir(tmp_path / "state" / FOLDER) == [os.path.basename(made.path)]
    made.close()


def test_each_workspace_has_a_file_of_its_own() -> None:
    one, other = Database("/s", ["/a"]), Database("/s", ["/b"])
    assert one.path != other.path
    assert Database("/s", ["/a", "/b"]).path == Database("/s", ["/b", "/a"]).path
    assert Database("/s", ["/a\udcff"]).path != one.path


async def test_what_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    made = database(tmp_path)
    assert await made.run(counted) == 1

    def half(connection: sqlite3.Connection) -> None:
        counted(connection)
        raise NotFound("the other half")

    def ended_by_sqlite(connection: sqlite3.Connection) -> None:
        counted(connection)
        connection.execute("ROLLBACK")
        raise NotFound("the rest")

    def mistaken(connection: sqlite3.Connection) -> None:
        """A mistake in the words to SQLite is no damage."""
        counted(connection)
        connection.execute("CREATE TABLE t (x NOT NULL)")
        connection.execute("INSERT INTO t VALUES (NULL)")

    for number, (work, error) in enumerate(
        ((half, NotFound), (ended_by_sqlite, NotFound), (mistaken, sqlite3.IntegrityError)), 2
    ):
        with pytest.raises(error):
            await made.run(work)
        assert await made.run(counted) == number


async def test_another_server_that_does_not_let_go_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.stores.database._BUSY_TIMEOUT_SECONDS", 0.05)
    made = database(tmp_path)
    await made.run(counted)
    other = sqlite3.connect(made.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Conflict, match="try again"):
        await made.run(counted)
    other.execute("ROLLBACK")
    other.close()
    assert await made.run(counted) == 2


async def test_changes_of_one_server_are_serial_and_leave_the_threads_of_others_free(tmp_path: Path) -> None:
    made, go = database(tmp_path), threading.Event()
    threads = int(anyio.to_thread.current_default_thread_limiter().total_tokens)
    found: list[int] = []

    def stay(connection: sqlite3.Connection) -> None:
        if not go.wait(5):
            go.set()
            raise AssertionError
        found.append(counted(connection))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(threads):
                tasks.start_soon(made.run, stay)
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(go.set)
    assert sorted(found) == list(range(1, threads + 1))
    made.close()


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database at all, but something somebody may want back" * 50)


def torn(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [garbage, torn])
async def test_a_damaged_file_is_kept_aside_whole_and_a_new_one_begun(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    first = database(tmp_path)
    await first.run(counted)
    first.close()
    damage(Path(first.path))
    content = Path(first.path).read_bytes()
    again = database(tmp_path)
    with pytest.raises(Unavailable, match="damaged") as failure:
        await again.run(counted)
    aside = [path for path in Path(first.path).parent.iterdir() if "damaged" in path.name]
    assert [path.read_bytes() for path in aside] == [content]
    assert f"{FOLDER}/{aside[0].name}" in str(failure.value)
    assert await again.run(counted) == 1


async def test_damage_under_an_open_file_is_noticed(tmp_path: Path) -> None:
    made = database(tmp_path)
    for _ in range(3):
        await made.run(counted)
    torn(Path(made.path))
    # SQLite reads pages again only after somebody else has changed the file.
    with open(made.path, "r+b") as file:
        file.seek(24)
        file.write(b"\0\0\xff\xff")
    with pytest.raises(Unavailable, match="damaged"):
        await made.run(lambda c: c.execute("SELECT * FROM counter").fetchall())
    assert await made.run(counted) == 1


async def test_a_journal_goes_with_the_file_it_belongs_to(tmp_path: Path) -> None:
    """Next to a new file, SQLite would play it back into that."""
    made = database(tmp_path)
    await made.run(counted)
    Path(made.path + "-journal").write_bytes(b"journal")
    made._set_aside()
    left = sorted(path.name for path in Path(made.path).parent.iterdir())
    assert len(left) == 2
    assert left[1] == left[0] + "-journal"


async def test_two_servers_that_find_the_damage_put_one_file_aside(tmp_path: Path) -> None:
    made = database(tmp_path)
    await made.run(counted)
    made.close()
    garbage(Path(made.path))
    first, second = database(tmp_path), database(tmp_path)
    for server in (first, second):
        # Both have looked at the damaged file before either has put it aside.
        server._identity = (os.stat(made.path).st_dev, os.stat(made.path).st_ino)
    first._set_aside()
    assert await first.run(counted) == 1
    second._set_aside()
    assert await second.run(counted) == 2


async def test_a_damaged_file_that_cannot_be_put_aside_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.stores.file_lock.LOCK_TIMEOUT_SECONDS", 0.01)
    made = database(tmp_path)
    await made.run(counted)
    made.close()
    garbage(Path(made.path))
    content = Path(made.path).read_bytes()
    folder = os.open(os.path.dirname(made.path), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="cannot be read or written"):
            await database(tmp_path).run(counted)
    finally:
        os.close(folder)
    assert Path(made.path).read_bytes() == content
    with pytest.raises(Unavailable, match="damaged"):
        await database(tmp_path).run(counted)


async def test_a_file_put_in_the_place_of_the_open_one_is_used(tmp_path: Path) -> None:
    made = database(tmp_path)
    assert await made.run(counted) == 1
    os.rename(made.path, made.path + ".old")
    assert await made.run(counted) == 1


async def test_a_place_that_is_not_private_is_not_used(tmp_path: Path) -> None:
    for kind in ("a link", "a folder open to others", "a linked folder", "no folder"):
        made, state, elsewhere = (
            database(tmp_path / kind),
            tmp_path / kind / "state",
            tmp_path / kind / "else",
        )
        file = Path(made.path)
        elsewhere.mkdir(parents=True, mode=0o700)
        (elsewhere / "file").write_bytes(b"")
        if kind == "no folder":
            state.write_bytes(b"")
        elif kind == "a linked folder":
            state.mkdir()
            file.parent.symlink_to(elsewhere)
        else:
            file.parent.mkdir(parents=True, mode=0o700)
            if kind == "a link":
                file.symlink_to(elsewhere / "file")
            else:
                file.parent.chmod(0o755)
        with pytest.raises(Unavailable, match="cannot be read or written"):
            await made.run(counted)
        assert os.listdir(elsewhere) == ["file"]
        assert (elsewhere / "file").read_bytes() == b""


async def test_a_full_disk_and_a_file_of_another_kind_have_different_errors(tmp_path: Path) -> None:
    made = database(tmp_path)
    await made.run(counted)

    def full(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count=1")
        connection.execute("CREATE TABLE large (x)")
        connection.execute("INSERT INTO large VALUES (zeroblob(100000))")

    with pytest.raises(Unavailable, match="disk is full"):
        await made.run(full)
    with pytest.raises(Unavailable, match="SQLite cannot use the file"):
        await made.run(lambda connection: connection.execute("SELECT * FROM what_a_later_server_made"))
