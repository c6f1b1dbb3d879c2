"""The task board over real connections, in both eras; and every kind of background job by its id."""

import json
import os
import re
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.tasks import NewTask
from mcp_toolserver.stores.board import DIED, LEFT, StoredBoard
from mcp_toolserver.stores.tasks import StoredTasks, TaskRecord
from tests.plan.planning import Human
from tests.protocol.resource_clients import commanding, completed, listed, read, refusal
from tests.protocol.test_matrix import Ear, listening
from tests.support.following import following, said
from tests.support.live import ERAS, Setup, connected, text
from tests.support.processes import Daemons, until
from tests.tasks.test_board_killed import begun, call

TASKS = "toolserver://tasks"
ID = re.compile(r"task_[0-9a-f]{8}")


def name_of(result: CallToolResult) -> str:
    assert not result.is_error, text(result)
    return ID.findall(text(result))[0]


async def ended(client: Client, task: str) -> str:
    """What TaskOutput says at the end of a task."""
    with anyio.fail_after(60):
        while True:
            found = text(await client.call_tool("TaskOutput", {"task_id": task}))
            if not re.search(r"\[(running|pending)", found):
                return found


@pytest.mark.parametrize("era", ERAS)
async def test_tasks_are_resources_whose_changes_are_told(tmp_path: Path, era: str) -> None:
    ear = Ear()
    async with commanding(tmp_path) as made, made.client(era, message_handler=ear.message) as client:
        assert await read(client, TASKS) == "[]"
        assert f"{TASKS}/{{id}}" in {
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        }
        async with listening(client, ear, (TASKS,)):
            arguments = {"command": "sleep 100", "subject": "a", "description": "b"}
            task = name_of(await client.call_tool("TaskCreate", arguments))
            await ear.until(ResourceUpdated(TASKS))
        uri = f"{TASKS}/{task}"
        assert {TASKS, uri} <= set(await listed(client))
        found = json.loads(await read(client, uri))
        assert (found["subject"], found["description"]) == ("a", "b")
        assert [one["task_id"] for one in json.loads(await read(client, TASKS))] == [task]
        async with made.client() as other:
            assert await read(other, TASKS) == "[]"
            assert (await refusal(other, uri)).error.code == -32002
        assert await completed(client, f"{TASKS}/{{id}}", "task_", "id") == [task]
        async with listening(client, ear, (uri,)):
            await client.call_tool("TaskStop", {"task_id": task})
            await ear.until(ResourceUpdated(uri))
            await client.call_tool("TaskUpdate", {"task_id": task, "status": "deleted"})
            await ear.until(ResourcesListChanged())
        assert [one for one in await listed(client) if one.startswith(uri)] == []
        assert "not found" in str(await refusal(client, uri))
        assert (await refusal(client, f"{TASKS}x")).error.data == {"uri": f"{TASKS}x"}


async def test_tasks_wait_for_the_end_of_plan_mode(tmp_path: Path) -> None:
    """Also one that is about to start as plan mode begins, and not one that was created in it."""
    human = Human("Approve")
    setup = Setup.below(tmp_path, "workspace-write")
    async with connected(setup, elicitation_callback=human) as client:

        async def create(command: str, *needs: str) -> str:
            arguments = {"command": command, "subject": "a", "description": "b", "blocked_by": list(needs)}
            return name_of(await client.call_tool("TaskCreate", arguments))

        # Loads what tasks need, so that the next one starts soon.
        await ended(client, await create("true"))
        gate = name_of(await client.call_tool("TaskCreate", {"subject": "gate", "description": "b"}))
        waiting = await create("touch waited", gate)
        soon = [await create(f"touch soon-{number}") for number in range(3)]
        assert not (await client.call_tool("EnterPlanMode", {})).is_error
        complete = {"task_id": gate, "status": "completed"}
        # What may only read starts no task that may write.
        assert "workspace-write" in text(await client.call_tool("TaskUpdate", complete))
        assert "read" in await ended(client, await create("echo read"))
        assert "pending" in text(await client.call_tool("TaskGet", {"task_id": waiting}))
        assert not (setup.root / "waited").exists()
        await client.call_tool("ExitPlanMode", {"plan": "a plan"})
        await client.call_tool("TaskUpdate", complete)
        for task in (*soon, waiting):
            assert "completed" in await ended(client, task)
        assert {path.name for path in setup.root.iterdir()} == {"waited", "soon-0", "soon-1", "soon-2"}


async def test_the_tasks_of_a_client_that_left_are_cancelled_with_all_they_started(tmp_path: Path) -> None:
    daemons = Daemons()
    async with commanding(tmp_path) as made:
        async with made.client() as client:
            running = name_of(await client.call_tool("TaskCreate", {"command": f"{daemons.script}sleep 100"}))
            waiting = name_of(
                await client.call_tool("TaskCreate", {"command": "touch never", "blocked_by": [running]})
            )
            await until(lambda: len(daemons.alive()) == 4)
            (owner,) = made.handlers.client_ids.connections
        await until(lambda: daemons.alive() == [])
        board = StoredBoard(made.app.shared.database)
        with anyio.fail_after(20):
            for task in (running, waiting):
                while (found := await board.get(owner, task)).detail.summary.status != "cancelled":
                    await anyio.sleep(0.01)
                assert found.detail.summary.reason == LEFT
    assert not (tmp_path / "root/never").exists()


async def test_the_next_server_runs_what_waited_and_reports_what_ran(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    log = setup.root / "log"
    with begun(setup) as first:

        def created(**arguments: object) -> str:
            return call(first, "TaskCreate", **arguments)["structuredContent"]["task"]["task_id"]

        running = created(command="echo once >> log; sleep 100")
        note = created(subject="wait")
        later = created(command="echo later >> log; touch ../out 2> /dev/null; true", blocked_by=[note])
        await until(log.exists)
        os.kill(first.pid, signal.SIGKILL)
    # It keeps the task in the sandbox of the mode in which it was created.
    async with connected(replace(setup, mode="danger-full-access")) as client:
        assert await ended(client, running) == f"[failed: {DIED.removesuffix('.')}; next offset 0]"
        await client.call_tool("TaskUpdate", {"task_id": note, "status": "completed"})
        assert await ended(client, later) == "[completed; next offset 0]"
    assert log.read_text(encoding="utf-8").split() == ["once", "later"]
    assert not (tmp_path / "out").exists()


async def test_another_server_sees_a_running_task_but_cannot_stop_it(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    async with connected(setup) as one, connected(setup) as other:
        task = name_of(await one.call_tool("TaskCreate", {"command": "echo a; sleep 100"}))
        note = name_of(await other.call_tool("TaskCreate", {"subject": "x"}))
        after = name_of(await one.call_tool("TaskCreate", {"command": "echo b", "blocked_by": [note]}))
        shown = ""
        with anyio.fail_after(20):
            while "running" not in shown:
                shown = text(await other.call_tool("TaskOutput", {"task_id": task, "until": "now"}))
        assert shown == "[running in another server of the workspace; next offset 0]"
        refused = await other.call_tool("TaskStop", {"task_id": task})
        assert "runs in another server" in text(refused)
        await other.call_tool("TaskUpdate", {"task_id": note, "status": "completed"})
        assert await ended(other, after) == "b\n[completed; next offset 2]"
        assert not (await one.call_tool("TaskStop", {"task_id": task})).is_error


async def test_an_mcp_task_is_a_background_job_as_well(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made, following(mcp_server(made.app)) as client:
        endless = await client.begun("bash", command="sleep 100")
        brief = await client.begun("bash", command="until [ -e go ]; do sleep 0.02; done; echo done")
        shown = said(await client.call("TaskOutput", task_id=endless, until="now"))
        assert re.fullmatch(r"\[working(: .*)?; next offset 0\]", shown)
        made.write("go", "")
        await client.ended(brief)
        assert said(await client.call("TaskOutput", task_id=brief)) == "done\n[completed; next offset 5]"
        assert "terminal state: completed" in said(await client.call("TaskStop", task_id=brief))
        stopped = said(await client.call("TaskStop", task_id=endless))
        assert stopped.startswith(f"{endless}: cancelled")
        for handle in ("x", "cron_1", f"task_{'0' * 32}"):
            for tool in ("TaskOutput", "TaskStop"):
                refused = await client.call(tool, task_id=handle)
                assert refused["isError"]
                assert re.match("No background job|task not found: task_000", said(refused))


async def test_an_mcp_task_of_another_server_cannot_be_stopped_here(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made, following(mcp_server(made.app)) as client:
        known = await client.begun("bash", command="sleep 100")
        (found,) = await made.app.shared.database.run(_principals)
        record = TaskRecord(id=f"task_{'a' * 32}", principal=found)
        other = StoredTasks(made.app.shared.database)
        await other.keep(record)
        shown = said(await client.call("TaskStop", task_id=record.id))
        assert "runs in another server" in shown
        shown = said(await client.call("TaskOutput", task_id=record.id, wait_ms=100))
        assert shown == "[working; next offset 0]"
        await other.aclose()
        await client.call("TaskStop", task_id=known)


def _principals(database: sqlite3.Connection) -> list[str]:
    return [row[0] for row in database.execute("SELECT DISTINCT principal FROM tasks")]


async def test_damaged_rights_let_no_task_run(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made:
        board = StoredBoard(made.app.shared.database)
        task = NewTask(subject="a", command="touch never")
        await board.create(LOCAL, "task_damaged", task, "{}")
        await board.aclose([LOCAL])
        runner = made.app.providers.runner()
        runner.adopts = True
        runner.look()
        with anyio.fail_after(20):
            while (await board.get(LOCAL, "task_damaged")).detail.summary.status != "failed":
                await anyio.sleep(0.01)
        found = await board.get(LOCAL, "task_damaged")
        assert "stored rights are damaged" in found.detail.summary.reason
    assert not (tmp_path / "root/never").exists()


async def test_reading_what_an_approved_command_printed_asks_nobody(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('granted = "read-only"\n', encoding="utf-8")
    asked: list[str] = []

    async def human(_: object, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "allow"})

    setup = Setup.below(tmp_path, "workspace-write", "--config", str(config))
    async with connected(setup, elicitation_callback=human) as client:
        started = await client.call_tool("bash", {"command": "echo ran", "run_in_background": True})
        (job,) = re.findall(r"bg_\w+", text(started))
        assert "ran" in text(await client.call_tool("TaskOutput", {"task_id": job}))
        assert len(asked) == 1
        await client.call_tool("TaskStop", {"task_id": job})
    assert ["TaskStop" in question for question in asked] == [False, True]
