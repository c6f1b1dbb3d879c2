"""Tasks as they are written down: by whom, for how long, and what becomes of those whose server is gone."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.tasks import SHUT_DOWN, StoredTasks, TaskRecord, TaskRetention


def database(folder: Path) -> Database:
    return Database(str(folder), ["root"])


def stored(folder: Path, **bounds: Any) -> StoredTasks:
    """A server's view of the tasks of one workspace."""
    return StoredTasks(database(folder), TaskRetention(**bounds))


def record(name: str = "task_a", **fields: Any) -> TaskRecord:
    return replace(TaskRecord(id=name, principal="me"), **fields)


async def found(store: StoredTasks, name: str = "task_a") -> TaskRecord:
    kept = await store.find(name, "me")
    assert kept is not None
    return kept


def presences(folder: Path) -> list[Path]:
    return list(folder.rglob("*.server-*"))


async def test_a_server_that_ends_keeps_no_more_and_cancels_what_works(tmp_path: Path) -> None:
    running = stored(tmp_path)
    await running.keep(record())
    await running.keep(failed := record("task_b", status="failed", outcome='{"code": 1, "message": "x"}'))
    await running.aclose()
    with pytest.raises(Unavailable):
        await running.keep(record())
    left = await found(stored(tmp_path))
    assert (left.status, left.message) == ("cancelled", SHUT_DOWN)
    assert await found(stored(tmp_path), "task_b") == failed
    running._database.close()
    assert presences(tmp_path) == []


async def test_a_store_that_cannot_be_written_does_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    here = database(tmp_path)
    store = StoredTasks(here)
    await store.keep(record())
    here.close()
    await store.aclose()


async def test_the_task_of_a_server_that_died_has_failed_unless_it_had_ended(tmp_path: Path) -> None:
    """The lock of that server goes with the first work of another."""
    died = stored(tmp_path)
    await died.keep(record("task_left"))
    await died.keep(record("task_done", status="completed", outcome="{}"))
    # As the kernel does when a process is killed.
    os.close(died._database.server._file)
    after = stored(tmp_path)
    left = await found(after, "task_left")
    assert (left.status, left.outcome) == ("failed", "")
    assert left.message
    assert (await found(after, "task_done")).status == "completed"
    dead = presences(tmp_path)
    await after.keep(record())
    assert len(presences(tmp_path)) == 1
    assert presences(tmp_path) != dead


async def test_a_server_that_shows_no_sign_of_life_is_gone(tmp_path: Path) -> None:
    await stored(tmp_path).keep(record())
    for sign in presences(tmp_path):
        sign.unlink()
    assert (await found(stored(tmp_path))).status == "failed"


async def test_a_task_expires_some_time_after_its_end(tmp_path: Path) -> None:
    store = stored(tmp_path, seconds=60)
    await store.keep(record("task_old", status="completed", outcome="{}", updated=time.time() - 61))
    await store.keep(record("task_new", status="completed", outcome="{}", updated=time.time() - 30))
    await store.keep(record("task_long", created=time.time() - 1000, updated=time.time() - 1000))
    assert await store.find("task_old", "me") is None
    assert await store.find("task_new", "me") is not None
    assert await store.find("task_long", "me") is not None


async def test_only_so_many_tasks_and_bytes_are_kept(tmp_path: Path) -> None:
    store = stored(tmp_path / "tasks", tasks=2)
    await store.keep(record("task_a"))
    await store.keep(record("task_b"))
    with pytest.raises(Unavailable):
        await store.keep(record("task_c"))
    await store.keep(record("task_b", status="completed", outcome="{}"))
    store = stored(tmp_path / "bytes", outcome_bytes=10)
    await store.keep(record("task_a", status="completed", outcome='"äöü"'))
    with pytest.raises(Unavailable):
        await store.keep(record("task_b", status="completed", outcome='"12"'))
    await store.keep(record("task_b", status="completed", outcome='""'))
    await store.keep(record("task_a", status="completed", outcome='"äöü"'))
