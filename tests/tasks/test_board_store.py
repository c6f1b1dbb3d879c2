"""The stores of the task board and of MCP tasks: limits, several servers, and the tasks of ended servers."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.tasks import NewTask, TaskChange, TaskDetail
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, Unavailable
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.stores.board import (
    DIED,
    LEFT,
    BoardLimits,
    Claim,
    Outcome,
    StoredBoard,
    new_id,
)
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.tasks import StoredTasks, TaskRecord, TaskRetention

OTHER = "connection 1"


def database(folder: Path) -> Database:
    return Database(str(folder), ["root"])


def board(folder: Path, **limits: int) -> StoredBoard:
    """A server's view of the board."""
    return StoredBoard(database(folder), BoardLimits(**limits))


async def create(at: StoredBoard, owner: str = LOCAL, *needs: str, command: str = "") -> str:
    task = NewTask(subject="a task", command=command, blocked_by=needs)
    return (await at.create(owner, new_id(), task, "{}")).summary.id


async def status(at: StoredBoard, task: str, owner: str = LOCAL) -> str:
    return (await at.get(owner, task)).detail.summary.shown_status


async def claim(at: StoredBoard, *, adopts: bool = False, most: int = 10) -> tuple[list[str], bool]:
    left = [one.id for one in await at.left(LOCAL)] if adopts else ()
    claims, waits = await at.claim((most, 0), [LOCAL, OTHER], adopts=left)
    return [one.id for one in claims], waits


async def end(at: StoredBoard) -> None:
    """Let a server end."""
    await at.aclose([LOCAL, OTHER])
    at._database.close()


def end_of(task: str) -> Claim:
    return Claim(id=task, owner=LOCAL, subject="", prompt="", command="", rights="", messages=(), schedule="")


async def test_a_server_claims_its_own_ready_tasks_in_order(tmp_path: Path) -> None:
    at, other = board(tmp_path), board(tmp_path)
    note = await create(at)
    first = await create(at, command="1")
    await create(other, command="2")
    last = await create(at, LOCAL, first, note, command="3")
    assert await claim(at, adopts=True) == ([first], True)
    assert await claim(at) == ([], True)
    await at.finish(end_of(first), Outcome(status="completed", output=b"x"))
    await other.update(LOCAL, TaskChange(id=note, status="completed"), Rights())
    assert await claim(at) == ([last], False)
    # More than it asks for waits.
    for _ in range(3):
        await create(at, command="x")
    claims, waits = await claim(at, most=2)
    assert (len(claims), waits) == (2, True)


async def test_the_tasks_of_a_killed_server_are_failed_taken_over_or_cancelled(tmp_path: Path) -> None:
    killed = board(tmp_path)
    for name, owner in (("task_run", LOCAL), ("task_wait", LOCAL), ("task_other", OTHER)):
        await killed.create(owner, name, NewTask(subject=name, command="true"), "{}")
    await killed.create(LOCAL, "task_note", NewTask(subject="note", status="in_progress"), "")
    await killed.claim((1, 0), [LOCAL])
    # As the kernel does when a process is killed.
    os.close(killed._database.server._file)
    changed: list[str] = []
    at = StoredBoard(database(tmp_path), changed=lambda _, task: changed.append(task))
    run = (await at.get(LOCAL, "task_run")).detail.summary
    assert (run.status, run.reason) == ("failed", DIED)
    other = (await at.get(OTHER, "task_other")).detail.summary
    assert (other.status, other.reason) == ("cancelled", LEFT)
    assert await status(at, "task_note") == "in_progress"
    assert changed == ["task_run", "task_other"]
    assert await claim(at) == ([], False)
    assert (await at.get(LOCAL, "task_wait")).detail.summary.is_left
    assert await claim(at, adopts=True) == (["task_wait"], False)
    assert await claim(board(tmp_path), adopts=True) == ([], False)


async def test_servers_that_take_over_at_the_same_time_share_the_tasks(tmp_path: Path) -> None:
    first = board(tmp_path)
    left = {await create(first, command="x") for _ in range(20)}
    await end(first)
    taken: list[str] = []

    async def take(at: StoredBoard) -> None:
        claims: list[str] | bool = True
        while claims:
            claims, _ = await claim(at, adopts=True, most=3)
            taken.extend(claims)

    async with anyio.create_task_group() as servers:
        for _ in range(4):
            servers.start_soon(take, board(tmp_path))
    assert (len(taken), set(taken)) == (20, left)


async def test_a_server_that_ends_leaves_what_waits_to_the_next_and_who_leaves_takes_its_tasks_along(
    tmp_path: Path,
) -> None:
    first = board(tmp_path)
    running = await create(first, command="x")
    await claim(first)
    waiting = await create(first, command="y")
    gone = await create(first, OTHER, command="z")
    await end(first)
    with pytest.raises(Unavailable, match="shutting down"):
        await create(first)
    at = board(tmp_path)
    mine = await create(at)
    ended, left = await create(at, OTHER), await create(at, OTHER)
    await at.update(OTHER, TaskChange(id=ended, status="completed"), Rights())
    assert await at.leave(OTHER) == (left,)
    assert [await status(at, task, OTHER) for task in (ended, left)] == ["completed", "cancelled"]
    assert await status(at, mine) == "pending"
    assert await status(at, running) == "failed"
    assert await status(at, gone, OTHER) == "cancelled"
    assert await claim(at, adopts=True) == ([waiting], False)
    await end(at)
    assert list(tmp_path.rglob("*.server-*")) == []
    # What cannot be written at the end is left to the next server.
    stored = database(tmp_path)
    at = StoredBoard(stored)
    task = await create(at, command="x")
    stored.close()
    with pytest.raises(Unavailable):
        await at.aclose([LOCAL])
    assert await claim(board(tmp_path), adopts=True) == ([task], False)


async def test_a_full_board_drops_the_oldest_ended_tasks_nobody_needs(tmp_path: Path) -> None:
    removed: list[str] = []
    at = StoredBoard(database(tmp_path), BoardLimits(tasks=3), removed=removed.append)
    needed, ended = await create(at), await create(at)
    for task in (needed, ended):
        await at.update(LOCAL, TaskChange(id=task, status="completed"), Rights())
    await create(at, LOCAL, needed)
    await create(at)
    assert removed == [ended]
    with pytest.raises(Unavailable, match="full: it has room for 3 tasks"):
        await create(at)
    with pytest.raises(NotFound):
        await at.get(LOCAL, ended)


async def test_texts_are_bounded_together_and_of_the_output_the_end_is_kept(tmp_path: Path) -> None:
    at = board(tmp_path, output=4)
    task = await create(at, command="x")
    await claim(at)
    await at.finish(end_of(task), Outcome(status="completed", output=b"abcdef", output_start=10))
    found = await at.get(LOCAL, task)
    assert (found.output, found.output_start, found.detail.output_bytes) == (b"cdef", 12, 16)
    at = board(tmp_path / "texts", size=200, messages=2)
    task = await create(at)
    await at.update(LOCAL, TaskChange(id=task, description="x" * 70), Rights())
    for change in (
        TaskChange(id=task, subject="x" * 140),
        TaskChange(id=task, output="x" * 140),
        TaskChange(id=task, message="x" * 140),
    ):
        with pytest.raises(Unavailable, match="full"):
            await at.update(LOCAL, change, Rights())
    assert (await at.get(LOCAL, task)).detail.summary.subject == "a task"
    await at.update(LOCAL, TaskChange(id=task, message="1"), Rights())
    await at.update(LOCAL, TaskChange(id=task, message="2"), Rights())
    with pytest.raises(Conflict, match="2 messages already"):
        await at.update(LOCAL, TaskChange(id=task, message="3"), Rights())


async def test_dependencies_are_limited_and_stay_as_they_are_once_a_task_runs(tmp_path: Path) -> None:
    at = board(tmp_path, needs=1)
    one, other = await create(at), await create(at)
    with pytest.raises(InvalidInput, match="more than 1 tasks"):
        await create(at, LOCAL, one, other)
    runs = await create(at, command="x")
    await claim(at)
    with pytest.raises(Conflict, match="has started"):
        await at.update(LOCAL, TaskChange(id=runs, blocked_by=()), Rights())
    with pytest.raises(Conflict, match="has started"):
        await at.update(LOCAL, TaskChange(id=one, add_blocks=(runs,)), Rights())
    with pytest.raises(Conflict, match="runs now"):
        await at.remove(LOCAL, runs, Rights())
    with pytest.raises(Conflict, match="in another server"):
        await board(tmp_path).cancel(LOCAL, runs, "no", Rights())


async def test_what_failed_is_retried_and_what_depends_on_it_waits_again(tmp_path: Path) -> None:
    at, other = board(tmp_path), board(tmp_path)
    failed = await create(at, command="x")
    after = await create(at, LOCAL, failed, command="y")
    note = await create(at)
    await claim(at)
    retried = TaskChange(id=failed, status="pending")
    with pytest.raises(InvalidInput, match="sets its status"):
        await other.update(LOCAL, retried, Rights())
    await at.finish(end_of(failed), Outcome(status="failed", reason="Exit status 1.", output=b"lost"))
    assert await status(at, after) == "blocked"
    assert (await other.update(LOCAL, retried, Rights())).output_bytes == 0
    assert await status(at, after) == "pending"
    assert [await claim(one) for one in (at, other)] == [([], True), ([failed], False)]
    await at.update(LOCAL, TaskChange(id=note, status="failed", message="why"), Rights())
    with pytest.raises(Conflict, match="terminal state"):
        await at.update(LOCAL, TaskChange(id=note, status="pending"), Rights())


async def test_a_change_is_announced_with_all_that_it_may_block(tmp_path: Path) -> None:
    news: list[tuple[str, str]] = []
    at = StoredBoard(database(tmp_path), changed=lambda owner, task: news.append((owner, task)))
    first = await create(at)
    second = await create(at, LOCAL, first)
    third = await create(at, LOCAL, second, first)
    news.clear()
    await at.update(LOCAL, TaskChange(id=first, status="failed", message="why"), Rights())
    assert [task for _, task in news] == [first, second, third]
    made: TaskDetail = (await at.get(LOCAL, third)).detail
    assert made.summary.is_blocked


def stored(folder: Path, **bounds: Any) -> StoredTasks:
    """A server's view of the tasks of one workspace."""
    return StoredTasks(database(folder), TaskRetention(**bounds))


def record(name: str = "task_a", **fields: Any) -> TaskRecord:
    return replace(TaskRecord(id=name, principal="me"), **fields)


async def found(store: StoredTasks, name: str = "task_a") -> Any:
    return await store.find(name, "me")


def presences(folder: Path) -> list[Path]:
    return list(folder.rglob("*.server-*"))


async def test_a_server_ends_without_its_store_and_one_without_a_sign_of_life_is_gone(tmp_path: Path) -> None:
    here = database(tmp_path)
    store = StoredTasks(here)
    await store.keep(record())
    here.close()
    await store.aclose()
    await stored(tmp_path).keep(record())
    for sign in presences(tmp_path):
        sign.unlink()
    assert (await found(stored(tmp_path))).status == "failed"


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
