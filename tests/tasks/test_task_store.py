"""Tasks as they are written down: by whom, for how long, and what becomes of those whose server is gone."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.tasks import SHUT_DOWN, StoredTasks, TaskRecord, TaskRetention

KEEPS = """
import anyio, os, sys
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.tasks import StoredTasks, TaskRecord
store = StoredTasks(Database(sys.argv[1], ["root"]))
anyio.run(store.keep, TaskRecord(id="task_left", principal="me"))
if len(sys.argv) > 2:
    anyio.run(store.keep, TaskRecord(id="task_left", principal="me", status="completed", outcome="{}"))
os._exit(9)
"""


def database(folder: Path) -> Database:
    return Database(str(folder), ["root"])


def stored(folder: Path, **bounds: Any) -> StoredTasks:
    """A server's view of the tasks of one workspace."""
    return StoredTasks(database(folder), TaskRetention(**bounds))


def record(name: str = "task_a", **fields: Any) -> TaskRecord:
    return replace(TaskRecord(id=name, principal="me"), **fields)


def presences(folder: Path) -> list[Path]:
    return list(folder.rglob("*.tasks-*"))


async def test_what_came_of_a_task_is_there_for_the_next_server(tmp_path: Path) -> None:
    first = stored(tmp_path)
    await first.keep(record())
    await first.keep(done := record(status="completed", outcome='{"content": []}', message="all done"))
    await first.aclose()
    assert await stored(tmp_path).find("task_a", "me") == done


async def test_nothing_is_opened_before_the_first_task(tmp_path: Path) -> None:
    await stored(tmp_path).aclose()
    assert list(tmp_path.iterdir()) == []


async def test_only_its_principal_finds_a_task_also_in_another_server(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.keep(record())
    assert await store.find("task_a", "another") is None
    assert await store.find("task_b", "me") is None
    found = await stored(tmp_path).find("task_a", "me")
    assert found is not None
    assert found.status == "working"


async def test_what_works_when_its_server_ends_was_cancelled(tmp_path: Path) -> None:
    running = stored(tmp_path)
    await running.keep(record())
    await running.keep(record("task_b", status="failed", outcome='{"code": 1, "message": "x"}'))
    await running.aclose()
    found = await stored(tmp_path).find("task_a", "me")
    assert found is not None
    assert (found.status, found.message) == ("cancelled", SHUT_DOWN)
    found = await stored(tmp_path).find("task_b", "me")
    assert found is not None
    assert found.status == "failed"
    assert presences(tmp_path) == []


async def test_a_server_that_ends_keeps_no_more(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.aclose()
    with pytest.raises(Unavailable):
        await store.keep(record())


async def test_a_store_that_cannot_be_written_does_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    here = database(tmp_path)
    store = StoredTasks(here)
    await store.keep(record())
    here.close()
    await store.aclose()


@pytest.mark.parametrize("how", ["asked for", "another is begun"])
async def test_the_task_of_a_server_that_died_has_failed(tmp_path: Path, how: str) -> None:
    died = subprocess.run([sys.executable, "-c", KEEPS, str(tmp_path)], check=False)
    assert died.returncode == 9
    assert len(presences(tmp_path)) == 1
    after = stored(tmp_path)
    if how == "another is begun":
        await after.keep(record("task_b"))
    found = await after.find("task_left", "me")
    assert found is not None
    assert (found.status, found.outcome) == ("failed", "")
    assert found.message
    assert len(presences(tmp_path)) == (how == "another is begun")


async def test_a_server_that_shows_no_sign_of_life_is_gone(tmp_path: Path) -> None:
    await stored(tmp_path).keep(record())
    for sign in presences(tmp_path):
        sign.unlink()
    found = await stored(tmp_path).find("task_a", "me")
    assert found is not None
    assert found.status == "failed"


async def test_what_a_dead_server_has_left_lying_is_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KEEPS, str(tmp_path), "and ends it"], check=False)
    after = stored(tmp_path)
    found = await after.find("task_left", "me")
    assert found is not None
    assert found.status == "completed"
    await after.keep(record())
    assert len(presences(tmp_path)) == 1


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
