"""The task board through the dispatcher, with real commands."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.policy.rules import Narrowing
from tests.plan.planning import refused_each
from tests.support.processes import call
from tests.support.workbench import Person
from tests.support.workshop import workshop

ID = re.compile(r"task_[0-9a-f]{8}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Dispatcher]:
    async with workshop(tmp_path) as made:
        yield made


async def created(server: Dispatcher, **arguments: Any) -> str:
    result = await call(server, "TaskCreate", **arguments)
    assert result.error is None, result.text
    return ID.findall(result.text)[0]


async def ended(server: Dispatcher, task: str) -> str:
    """What TaskOutput says at the end of a task."""
    while True:
        text = (await call(server, "TaskOutput", task_id=task)).text
        if not re.search(r"\[(running|pending|in progress)", text):
            return text


async def shows(server: Dispatcher, task: str, word: str) -> None:
    """Returns when the output of a task, which goes on, has this word."""
    while word not in (await call(server, "TaskOutput", task_id=task, until="now")).text:
        await anyio.sleep(0.01)


def task(result: Result) -> dict[str, Any]:
    assert result.error is None, result.text
    data: dict[str, Any] = result.data or {}
    return data["task"]


async def test_tasks_run_in_the_order_of_their_dependencies_or_are_blocked_with_the_reason(
    server: Dispatcher, tmp_path: Path
) -> None:
    first = await created(server, command="until [ -e go ]; do sleep 0.01; done; echo first >> log")
    second = await created(server, command="echo second >> log", blockedBy=[first])
    third = await created(server, command="echo third >> log; cat log", addBlockedBy=[second, first])
    shown = await call(server, "TaskOutput", task_id=third, until="now")
    assert shown.text == f"[pending: waits for {second}, {first}; next offset 0]"
    (tmp_path / "root" / "go").touch()
    assert await ended(server, third) == "first\nsecond\nthird\n[completed; next offset 19]"
    assert (
        await call(server, "TaskOutput", id=third, offset=13)
    ).text == "third\n[completed; next offset 19]"
    failing = await created(server, command="echo oops; exit 3")
    after = await created(server, command="touch never", blocked_by=[failing])
    last = await created(server, command="touch never", blocked_by=[after])
    assert await ended(server, failing) == "oops\n[failed: exit status 3; next offset 5]"
    for name in (after, last):
        assert await ended(server, name) == (
            f"[blocked: {failing}, which it depends on, failed; next offset 0]"
        )
    listed: dict[str, Any] = (await call(server, "TaskList", status="blocked")).data or {}
    assert [one["task_id"] for one in listed["tasks"]] == [after, last]
    freed = await call(server, "TaskUpdate", task_id=after, blocked_by=[], message="not needed")
    assert freed.error is None
    assert "[completed" in await ended(server, last)


async def test_the_output_of_a_running_task_is_live_and_stopping_kills_it(server: Dispatcher) -> None:
    made = await call(server, "TaskCreate", command="echo begun; sleep 100", subject="Greet")
    assert re.fullmatch(r"Task created: task_\w+ \[pending\] Greet \(runs a command\)", made.text)
    name = task(made)["task_id"]
    await shows(server, name, "begun")
    live = await call(server, "TaskOutput", task_id=name, offset=0, until="output", wait_ms=20_000)
    assert re.fullmatch(r"begun\n\[running for \d+\.\d s; next offset 6\]", live.text)
    stopped = await call(server, "TaskStop", taskId=name, reason="enough")
    assert stopped.text == f"{name}: cancelled: It was stopped with TaskStop: enough; 6 bytes of output."
    said = "begun\n[cancelled: It was stopped with TaskStop: enough; next offset 6]"
    assert await ended(server, name) == said
    waits = await created(server, subject="a note")
    assert "TaskStop: not needed;" in (await call(server, "TaskStop", id=waits, reason="not needed.")).text
    again = await call(server, "TaskStop", task_id=name)
    assert (again.error, again.text) == ("conflict", f"task {name} is already in terminal state: cancelled")


async def test_no_more_than_eight_tasks_run_at_once_and_the_rest_waits(
    server: Dispatcher, tmp_path: Path
) -> None:
    wait = "echo {} >> begun; until [ -e go ]; do sleep 0.02; done"
    names = [await created(server, command=wait.format(number)) for number in range(10)]
    for name in names[:8]:
        await shows(server, name, "running")
    for name in names[8:]:
        shown = await call(server, "TaskOutput", task_id=name, until="now")
        assert shown.text == "[pending: waits for others to end; next offset 0]"
    stopped = await call(server, "TaskStop", task_id=names[9])
    assert stopped.text == f"{names[9]}: cancelled: It was stopped with TaskStop; 0 bytes of output."
    (tmp_path / "root" / "go").touch()
    assert "[completed" in await ended(server, names[8])
    begun = (tmp_path / "root" / "begun").read_text(encoding="utf-8").split()
    assert (sorted(begun), begun[-1]) == (sorted(str(number) for number in range(9)), "8")


async def test_what_is_in_force_when_a_task_runs_binds_it(server: Dispatcher, tmp_path: Path) -> None:
    only = Narrowing(source="plan mode", tools=server.rules(("TaskCreate", "TaskUpdate", "TaskOutput")))
    blocker = await created(server, command="echo begun; until [ -e go ]; do sleep 0.01; done")
    name = await created(server, command="touch made", blocked_by=[blocker])
    await shows(server, blocker, "begun")
    server.narrowings.put("local", "plan", only)
    refused = await call(server, "TaskCreate", command="touch made")
    assert (refused.error, refused.text) == (
        "unavailable",
        "The task was not created, because it needs the tool bash: these calls may not use bash here.",
    )
    refused = await call(server, "TaskUpdate", task_id=name, message="x")
    assert (refused.error, "the tools that plan mode takes away" in refused.text) == ("denied", True)
    (tmp_path / "root" / "go").touch()
    assert (await ended(server, name)).startswith(
        "[failed: plan mode allows only TaskCreate, TaskUpdate, TaskOutput, and not this call of bash"
    )
    assert not (tmp_path / "root" / "made").exists()


async def test_a_task_keeps_the_rights_under_which_it_was_created(tmp_path: Path) -> None:
    async with workshop(tmp_path, Permission.WORKSPACE_WRITE) as server:
        blocker = await created(server, subject="wait")
        server.narrowings.put("local", "plan", Narrowing(source="plan mode", ceiling=Permission.READ_ONLY))
        name = await created(server, command="touch made", blocked_by=[blocker])
        server.narrowings.remove("local", "plan")
        await call(server, "TaskUpdate", task_id=blocker, status="completed")
        assert "Read-only file system" in await ended(server, name)
        assert "[completed" in await ended(server, await created(server, command="touch now"))
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["now"]


async def test_a_note_goes_from_status_to_status_until_a_final_one(server: Dispatcher) -> None:
    name = await created(server, subject="Write docs", description="All of them", activeForm="Writing docs")
    changed = await call(server, "TaskUpdate", taskId=name, status="in_progress", owner="me", message="begun")
    assert changed.text == f"Task updated: {name} [in_progress] Write docs (owner: me)"
    got = task(await call(server, "TaskGet", id=name))
    assert got | {"created_at": 0, "updated_at": 0} == {
        "task_id": name,
        "status": "in_progress",
        "subject": "Write docs",
        "owner": "me",
        "description": "All of them",
        "active_form": "Writing docs",
        "messages": [{"text": "begun", "at": got["messages"][0]["at"]}],
        "created_at": 0,
        "updated_at": 0,
    }
    shown = (await call(server, "TaskGet", task_id=name)).text
    assert shown.startswith(f"{name} [in_progress] Write docs (owner: me)\ndescription:\nAll of them\n[")
    assert "] begun\ncreated " in shown
    done = await call(server, "TaskUpdate", id=name, status="completed", output="see docs/")
    assert done.error is None
    assert await ended(server, name) == "see docs/\n[completed; next offset 9]"
    final = await call(server, "TaskUpdate", id=name, status="pending")
    assert (final.error, final.text) == ("conflict", f"task {name} is already in terminal state: completed")
    assert (await call(server, "TaskUpdate", id=name, message="thanks")).error is None
    name = await created(server, subject="a", status="in_progress")
    failed = await call(server, "TaskUpdate", task_id=name, status="failed", message="no time")
    assert failed.text == f"Task updated: {name} [failed] a; no time"


async def test_tasks_are_listed_by_status_and_owner_with_subjects_taken_from_other_texts(
    server: Dispatcher,
) -> None:
    one = await created(server, subject="a", owner="ann")
    other = await created(server, subject="b", blocked_by=[one])
    listed = await call(server, "TaskList")
    assert listed.text == f"{one} [pending] a (owner: ann)\n{other} [pending] b; waits for {one}"
    assert listed.data == {
        "tasks": [
            {"task_id": one, "status": "pending", "subject": "a", "owner": "ann"},
            {"task_id": other, "status": "pending", "subject": "b", "blocked_by": [one]},
        ],
        "count": 2,
    }
    assert (await call(server, "TaskList", owner="ann")).text == f"{one} [pending] a (owner: ann)"
    assert (await call(server, "TaskList", status="completed")).text == "No tasks."
    await created(server, command="\n true \n# x")
    await created(server, command="true", description="y" * 300)
    *_, first, second = (await call(server, "TaskList")).text.splitlines()
    assert "] true (runs a command)" in first
    assert f"] {'y' * 199}… (runs a command)" in second


async def test_dependencies_are_added_from_both_sides_but_no_cycles_and_none_of_others(
    server: Dispatcher,
) -> None:
    one, other = await created(server, subject="a"), await created(server, subject="b")
    assert (await call(server, "TaskUpdate", taskId=one, addBlocks=[other])).error is None
    assert task(await call(server, "TaskGet", taskId=other))["depends_on"] == [one]
    changes: list[dict[str, Any]] = [
        {"addBlockedBy": [other]},
        {"addBlocks": [one]},
        {"blocked_by": [one]},
    ]
    for arguments in changes:
        refused = await call(server, "TaskUpdate", taskId=one, **arguments)
        assert refused.error == "invalid_input"
        assert refused.text.endswith("a cycle.")
    unknown = await call(server, "TaskCreate", subject="c", blocked_by=["task_0"])
    assert (unknown.error, unknown.text) == (
        "invalid_input",
        "There is no task task_0 to wait for. TaskList lists the tasks.",
    )
    name, other = await created(server, subject="a"), Person(owner="connection x")
    for tool in ("TaskGet", "TaskOutput", "TaskStop"):
        assert (await call(server, tool, other, task_id=name)).error == "not_found"
    assert (await call(server, "TaskUpdate", other, task_id=name, message="x")).error == "not_found"
    assert (await call(server, "TaskCreate", other, subject="b", blocked_by=[name])).error == "invalid_input"
    assert (await call(server, "TaskList", other)).text == "No tasks."


async def test_a_task_is_deleted_unless_it_runs_or_is_needed(server: Dispatcher) -> None:
    one = await created(server, command="sleep 100")
    other = await created(server, subject="b", blocked_by=[one])
    await shows(server, one, "running")
    assert (await call(server, "TaskUpdate", task_id=one, status="deleted")).error == "conflict"
    await call(server, "TaskStop", task_id=one)
    needed = await call(server, "TaskUpdate", task_id=one, status="deleted")
    assert needed.text == f"{one} cannot be removed, because {other} depends on it."
    shown = await call(server, "TaskOutput", task_id=other, until="now")
    assert shown.text == f"[blocked: {one}, which it depends on, was cancelled; next offset 0]"
    deleted = await call(server, "TaskUpdate", task_id=other, status="deleted")
    assert deleted.text == f"Task deleted: {other} b"
    assert task(deleted)["status"] == "deleted"
    assert (await call(server, "TaskUpdate", task_id=one, status="deleted")).error is None
    missing = await call(server, "TaskGet", task_id=one)
    assert (missing.error, missing.text) == (
        "not_found",
        f"task not found: {one}. TaskList lists the tasks.",
    )


NO_TASK: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "subject, prompt or command is required"),
    ({"prompt": "a", "command": "b"}, "exclude each other"),
    ({"subject": " "}, "must not be empty"),
    ({"command": "a", "status": "in_progress"}, "the server sets the status"),
)
NO_CHANGE: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "nothing to change"),
    ({"status": "deleted", "owner": "me"}, "cannot be changed as well"),
    ({"status": "completed"}, "so the server sets its status"),
    ({"output": "x"}, "which makes its output"),
)


async def test_what_makes_no_task_or_no_change_is_refused(server: Dispatcher) -> None:
    await refused_each(server, "TaskCreate", NO_TASK)
    # There is no model.
    refused = await call(server, "TaskCreate", prompt="do it", description="do")
    assert refused.error == "unavailable"
    assert refused.text.startswith("The task was not created, because it needs the tool Agent: ")
    assert (await call(server, "TaskList")).text == "No tasks."
    name = await created(server, command="sleep 100")
    await refused_each(server, "TaskUpdate", [({"task_id": name, **one}, says) for one, says in NO_CHANGE])
