"""The task board of servers and their clients; and every kind of background job by its id. Who lacks a right
with which deferred work runs may read the work, and change nothing about it.
"""

import json
import os
import random
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import CallToolResult

from benchmarks import client as benchmark_client
from benchmarks.client import Launch, Unanswered
from mcp_toolserver.app.compose import Application
from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.tasks import NewTask
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.stores.board import DIED, LEFT, BoardLimits, StoredBoard
from mcp_toolserver.stores.tasks import StoredTasks, TaskRecord
from tests import ROOT
from tests.protocol.resource_clients import commanding, completed, listed, read, refusal
from tests.protocol.test_matrix import Ear, listening
from tests.support.following import following, said
from tests.support.live import ERAS, Setup, connected, text
from tests.support.processes import Daemons, until
from tests.support.workbench import Person
from tests.tasks.schedules import application, call_by, create
from tests.tasks.test_board import ID, created, shows, task
from tests.tasks.test_board import ended as over

TASKS = "toolserver://tasks"


def name_of(result: CallToolResult) -> str:
    assert not result.is_error, text(result)
    return ID.findall(text(result))[0]


async def change(app: Application, **arguments: object) -> Result:
    return await call_by(Person(), app, "TaskUpdate", **arguments)


async def ended(client: Client, task: str) -> str:
    """What TaskOutput says at the end of a task."""
    with anyio.fail_after(60):
        while True:
            found = text(await client.call_tool("TaskOutput", {"task_id": task}))
            if not re.search(r"\[(running|pending)", found):
                return found


def begun(setup: Setup) -> benchmark_client.Client:
    """A server over stdio, to which nobody has connected yet."""
    command = [*setup.command, "--structured"]
    return benchmark_client.Client(Launch(command=command, cwd=ROOT, environment=setup.environment))


def call(server: benchmark_client.Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call. Raises: Unanswered or BrokenPipeError when the server was killed."""
    return server.request("tools/call", {"name": tool, "arguments": arguments}).result


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
    human = Person(answers=(("Approve",),))
    async with application(tmp_path) as app:
        server = app.dispatcher
        # Loads what tasks need, so that the next one starts soon.
        await over(server, await created(server, command="true"))
        gate = await created(server, subject="gate")
        waiting = await created(server, command="touch waited", blocked_by=[gate])
        soon = [await created(server, command=f"touch soon-{number}") for number in range(3)]
        await call_by(human, app, "EnterPlanMode")
        # What may only read starts no task that may write.
        assert "workspace-write" in (await change(app, task_id=gate, status="completed")).text
        assert "read" in await over(server, await created(server, command="echo read"))
        assert "pending" in (await call_by(human, app, "TaskGet", task_id=waiting)).text
        assert not (tmp_path / "root/waited").exists()
        await call_by(human, app, "ExitPlanMode", plan="a plan")
        await change(app, task_id=gate, status="completed")
        for task in (*soon, waiting):
            assert "completed" in await over(server, task)
    assert {path.name for path in (tmp_path / "root").iterdir()} == {"waited", "soon-0", "soon-1", "soon-2"}


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
    async with application(tmp_path) as one, application(tmp_path) as other:
        task = await created(one.dispatcher, command="echo a; sleep 100")
        note = await created(other.dispatcher, subject="x")
        after = await created(one.dispatcher, command="echo b", blocked_by=[note])
        await shows(other.dispatcher, task, "running")
        shown = (await call_by(Person(), other, "TaskOutput", task_id=task, until="now")).text
        assert shown == "[running in another server of the workspace; next offset 0]"
        refused = await call_by(Person(), other, "TaskStop", task_id=task)
        assert "runs in another server" in refused.text
        await change(other, task_id=note, status="completed")
        assert await over(other.dispatcher, after) == "b\n[completed; next offset 2]"
        assert (await call_by(Person(), one, "TaskStop", task_id=task)).error is None


async def test_an_mcp_task_is_a_background_job_that_its_own_server_stops(tmp_path: Path) -> None:
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
    human = Person(says=True)
    async with application(tmp_path, granted=Permission.READ_ONLY) as app:
        started = await call_by(human, app, "bash", command="echo ran", run_in_background=True)
        (job,) = re.findall(r"bg_\w+", started.text)
        assert "ran" in (await call_by(human, app, "TaskOutput", task_id=job)).text
        assert len(human.asked) == 1
        await call_by(human, app, "TaskStop", task_id=job)
    assert ["TaskStop" in question for question in human.asked] == [False, True]


@dataclass
class Worker:
    """A client that works on the board at random, and what it knows of it."""

    setup: Setup
    chosen: random.Random
    known: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The last acknowledged state of each task, as TaskList has it."""
    numbers: int = 0
    wrong: list[str] = field(default_factory=list[str])

    def killed(self, seconds: float, *, at_work: bool) -> None:
        """Work on a server until it is killed, `seconds` after its start, or after it has answered."""
        server = begun(self.setup)
        killer = threading.Timer(seconds, os.kill, (server.pid, signal.SIGKILL))
        if not at_work:
            killer.start()
        try:
            with server:
                if at_work:
                    killer.start()
                self.check(server)
                while True:
                    self.act(server)
        except BrokenPipeError:
            pass
        except Unanswered as error:
            if "the server ended" not in str(error):
                raise
        finally:
            killer.join()

    def check(self, server: benchmark_client.Client) -> None:
        """Compare what a server says with what was acknowledged."""
        found = call(server, "TaskList")["structuredContent"]["tasks"]
        after: dict[str, dict[str, Any]] = {task["task_id"]: task for task in found}
        for name, was in self.known.items():
            now = after.get(name)
            has_ended = was["status"] in FINAL
            if now is None:
                # A full board removes ended tasks for new ones.
                if not has_ended or len(after) < BoardLimits().tasks:
                    self.wrong.append(f"{name} is lost: {was}")
                continue
            is_other = now["subject"] != was["subject"] or (has_ended and now["status"] != was["status"])
            ran = was["status"] == "in_progress"
            if is_other or (ran and now["status"] != "completed" and now.get("reason") != DIED):
                self.wrong.append(f"{was} became {now}")
        self.known = after

    def act(self, server: benchmark_client.Client) -> None:
        """One call, and what it acknowledges."""
        self.numbers += 1
        left = [name for name, task in self.known.items() if task["status"] not in FINAL]
        notes = [name for name in left if "runs" not in self.known[name]]
        made = {"subject": str(self.numbers), "blocked_by": self.chosen.sample(left, min(len(left), 2))}
        if notes and self.chosen.random() < 0.4:
            result = call(server, "TaskUpdate", task_id=self.chosen.choice(notes), status="completed")
        elif self.chosen.random() < 0.3:
            result = call(server, "TaskCreate", **made)
        else:
            script = f"echo {self.numbers} >> log; sleep 0.{self.chosen.randrange(3)}"
            result = call(server, "TaskCreate", command=script, **made)
        if not result.get("isError"):
            task = result["structuredContent"]["task"]
            self.known[task["task_id"]] = task

    def finish(self) -> None:
        """Let the last server run what can run, and compare with what the commands did."""
        with begun(self.setup) as server:
            end = time.monotonic() + 60
            while True:
                self.check(server)
                notes = [name for name, task in self.known.items() if "runs" not in task]
                for name in notes:
                    call(server, "TaskUpdate", task_id=name, status="completed")
                states = {task["status"] for task in self.known.values()}
                if not states & {"pending", "in_progress"}:
                    break
                assert time.monotonic() < end, "not all ran"
        log = self.setup.root / "log"
        ran = Counter(log.read_text(encoding="utf-8").split() if log.exists() else ())
        self.wrong += [f"ran twice: {number}" for number, count in ran.items() if count > 1]
        for one in self.known.values():
            if "runs" in one and one["status"] == "completed" and one["subject"] not in ran:
                self.wrong.append(f"completed, but it did not run: {one}")


FINAL = ("completed", "failed", "cancelled")


@pytest.mark.long  # the gate has one kill, above
def test_servers_that_are_killed_at_random_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    """A server starts in a second under load, so it is killed within two of its start or first answer."""
    chosen = random.Random(11)
    for number in range(20):
        (folder := tmp_path / str(number)).mkdir()
        worker = Worker(Setup.below(folder, "workspace-write"), chosen)
        for kill in range(10):
            worker.killed(chosen.uniform(0, 2.0), at_work=kill % 2 == 0)
        worker.finish()
        assert worker.wrong == []
        assert worker.known


CHANGES: tuple[dict[str, Any], ...] = (
    {"message": "and delete everything"},
    {"subject": "x"},
    {"description": "x"},
    {"active_form": "x"},
    {"owner": "x"},
    {"blocked_by": []},
    {"add_blocked_by": ["OWN"]},
    {"add_blocks": ["OWN"]},
    {"status": "deleted"},
)
"""Of every task; OWN is a note of the caller's."""

STATUSES: tuple[dict[str, Any], ...] = tuple(
    {"status": status} for status in ("in_progress", "completed", "failed", "cancelled")
)
"""Of a note."""

READS = ("TaskGet", "TaskOutput")


@dataclass(frozen=True, kw_only=True)
class Work:
    """Deferred work on the board of the workspace."""

    waits_for: str
    """A note that the tasks wait for."""
    tasks: dict[str, str]
    schedule: str

    @property
    def operations(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Every way to influence it; OWN stands for a note of the caller's."""
        found: dict[str, tuple[str, dict[str, Any]]] = {
            "delete the schedule": ("CronDelete", {"cron_id": self.schedule}),
            "let the work wait for more": (
                "TaskUpdate",
                {"task_id": "OWN", "add_blocks": [self.tasks["agent"]]},
            ),
        }
        for kind, id_ in {**self.tasks, "note": self.waits_for, "note before": self.tasks["note"]}.items():
            found[f"stop the {kind}"] = ("TaskStop", {"task_id": id_})
            for change in (*CHANGES, *(STATUSES if kind.startswith("note") else ())):
                found[f"{kind}: {json.dumps(change)}"] = ("TaskUpdate", {"task_id": id_, **change})
        return found


async def made_by(app: Application) -> Work:
    async def made(**arguments: Any) -> str:
        return ID.findall((await call_by(Person(), app, "TaskCreate", **arguments)).text)[0]

    first = await made(subject="before")
    note = await made(subject="wait", blocked_by=[first])
    tasks = {
        "running command": await made(command="sleep 300"),
        "agent": await made(prompt="work", blocked_by=[note]),
        "command": await made(command="touch made", blocked_by=[note]),
        "note": first,
    }
    return Work(waits_for=note, tasks=tasks, schedule=await create(app, command="true"))


MODEL: dict[str, Any] = {"agent_provider": "openai", "agent_base_url": "http://127.0.0.1:9"}
MODEL["agent_model"] = "none"


async def test_who_lacks_a_right_of_deferred_work_can_only_read_it(tmp_path: Path) -> None:
    """Three servers of one workspace."""
    root = tmp_path / "root"
    (root / "part").mkdir(parents=True)
    wrong: list[str] = []
    async with AsyncExitStack() as stack:

        async def server(mode: Permission) -> Application:
            return await stack.enter_async_context(application(tmp_path, mode, **MODEL))

        strong, equal, weak = [
            await server(mode)
            for mode in (
                *(Permission.DANGER_FULL_ACCESS, Permission.DANGER_FULL_ACCESS),
                Permission.READ_ONLY,
            )
        ]
        work = await made_by(strong)

        async def lists() -> list[str]:
            return [(await call_by(Person(), strong, tool)).text for tool in ("TaskList", "CronList")]

        async def changed(tool: str, **arguments: Any) -> Result:
            """A change by a client with the same rights."""
            result = await call_by(Person(), equal, tool, **arguments)
            assert result.error is None, result.text
            return result

        for missing, app, person in (
            ("the permission mode danger-full-access", weak, Person()),
            (f"the folder {root}", equal, Person(works_in=[str(root / "part")])),
        ):
            own = task(await call_by(person, app, "TaskCreate", subject="own"))["task_id"]
            before = await lists()
            for name, (tool, arguments) in work.operations.items():
                sent = json.loads(json.dumps(arguments).replace("OWN", own))
                result = await call_by(person, app, tool, **sent)
                if not result.error or f"does not have: {missing}." not in result.text:
                    wrong.append(f"without {missing}, {name}: {result.text}")
            for tool, id_ in ((tool, id_) for tool in READS for id_ in work.tasks.values()):
                waits = {"until": "now"} if tool == "TaskOutput" else {}
                if (result := await call_by(person, app, tool, task_id=id_, **waits)).error:
                    wrong.append(f"{tool} of {id_}: {result.text}")
            after = await lists()
            assert (before, work.schedule in after[1]) == (after, True)
            # A note that no such work waits for stays everybody's.
            await changed("TaskUpdate", task_id=own, status="completed")
        assert wrong == []
        agent, running = work.tasks["agent"], work.tasks["running command"]
        await changed("TaskUpdate", task_id=agent, message="x")
        await changed("TaskUpdate", task_id=agent, add_blocked_by=[running])
        await changed("TaskUpdate", task_id=work.tasks["note"], status="completed")
        await changed("TaskUpdate", task_id=work.waits_for, status="completed")
        await changed("CronDelete", cron_id=work.schedule)
        await changed("TaskStop", task_id=agent)
        assert (await call_by(Person(), strong, "TaskStop", task_id=running)).error is None


async def test_what_a_client_removes_from_its_folders_is_lost_to_its_work_and_its_undo(
    tmp_path: Path,
) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    works = kept, removed = [setup.root / "kept", setup.root / "part"]
    for place in works:
        place.mkdir()
        (place / "file").write_text("what was there\n" * 9, encoding="utf-8")

    async def roots(_: object) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root.model_validate({"uri": one.as_uri()}) for one in works])

    async with connected(setup, list_roots_callback=roots) as client:

        async def said(tool: str, **arguments: Any) -> str:
            return text(await client.call_tool(tool, arguments))

        script = f"cat {kept}/file; cat {removed}/file > copy; true"
        wait = {"command": "until [ -e go ]; do sleep 0.02; done"}
        arguments = {
            "command": script,
            "blocked_by": [name_of(await client.call_tool("TaskCreate", wait))],
        }
        task = name_of(await client.call_tool("TaskCreate", arguments))
        written = await said("write_file", path=f"{removed}/file", content="new", overwrite=True)
        found = re.search(r"previous content: path (\S+)", written)
        assert found, written
        copy, handle = found[1], Path(found[1]).name.partition("-")[0]
        assert "what was there" in await said("read_file", path=copy)
        works.pop()
        await client.session.send_roots_list_changed()
        assert "what was there" not in await said("read_file", path=copy)
        for path in ("file", f"{removed}/file"):
            assert "what was there" not in await said("write_file", path=path, restore=handle)
        (kept / "go").touch()
        assert "what was there" in await ended(client, task)
        assert (kept / "copy").read_text(encoding="utf-8") == ""
    assert (removed / "file").read_text(encoding="utf-8") == "new"
