"""Who lacks a right with which deferred work runs may read the work, and change nothing about it."""

import json
import re
import subprocess
from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client

from tests.support.confinement import AS_ROOT_IN_LONG, as_user, scene
from tests.support.live import Setup, connected, text
from tests.tasks.test_board_served import ended, name_of
from tests.tasks.test_cron_served import create

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
        for kind, task in {**self.tasks, "note": self.waits_for, "note before": self.tasks["note"]}.items():
            found[f"stop the {kind}"] = ("TaskStop", {"task_id": task})
            for change in (*CHANGES, *(STATUSES if kind.startswith("note") else ())):
                found[f"{kind}: {json.dumps(change)}"] = ("TaskUpdate", {"task_id": task, **change})
        return found


async def made_by(client: Client) -> Work:
    async def task(**arguments: Any) -> str:
        return name_of(await client.call_tool("TaskCreate", arguments))

    first = await task(subject="before")
    note = await task(subject="wait", blocked_by=[first])
    running = await task(command="sleep 300")
    tasks = {
        "agent": await task(prompt="work", blocked_by=[note]),
        "command": await task(command="touch made", blocked_by=[note]),
        "running command": running,
        "note": first,
    }
    return Work(waits_for=note, tasks=tasks, schedule=await create(client, "true"))


@pytest.fixture(params=AS_ROOT_IN_LONG)
def setup(request: pytest.FixtureRequest) -> Generator[Setup]:
    """A server of root, or of an ordinary user, with the folders `part` and `kept`."""
    with scene(request.param) as made:
        for folder in ("part", "kept"):
            (made.root / folder).mkdir()
            (made.root / folder / "file").write_text("what was there\n" * 9, encoding="utf-8")
        config = made.base / "config.toml"
        model = '[agent]\nprovider = "openai"\nbase-url = "http://127.0.0.1:9"\nmodel = "none"\n'
        config.write_text(model, encoding="utf-8")
        made.own()
        flags = ("--config", str(config))
        yield Setup(
            root=made.root, home=made.base, mode="danger-full-access", flags=flags, around=as_user(made)
        )


async def test_who_lacks_a_right_of_deferred_work_can_only_read_it(setup: Setup) -> None:

    async def part(_: object) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root.model_validate({"uri": (setup.root / "part").as_uri()})])

    wrong: list[str] = []
    async with AsyncExitStack() as stack:

        async def server(mode: str = setup.mode, **options: Any) -> Client:
            return await stack.enter_async_context(connected(replace(setup, mode=mode), **options))

        strong, equal = await server(), await server()
        weaker = {
            "the permission mode danger-full-access": [
                await server("read-only"),
                await server("workspace-write"),
            ],
            f"the folder {setup.root}": [await server(list_roots_callback=part)],
        }
        work = await made_by(strong)
        for missing, client in ((why, one) for why, clients in weaker.items() for one in clients):
            own = name_of(await client.call_tool("TaskCreate", {"subject": "own"}))
            before = [text(await strong.call_tool(*read)) for read in (("TaskList", {}), ("CronList", {}))]
            for name, (tool, arguments) in work.operations.items():
                sent = json.loads(json.dumps(arguments).replace("OWN", own))
                result = await client.call_tool(tool, sent)
                if not result.is_error or f"does not have: {missing}." not in text(result):
                    wrong.append(f"without {missing}, {name}: {text(result)}")
            for tool, task in ((tool, task) for tool in READS for task in work.tasks.values()):
                waits = {"until": "now"} if tool == "TaskOutput" else {}
                if (result := await client.call_tool(tool, {"task_id": task, **waits})).is_error:
                    wrong.append(f"{tool} of {task}: {text(result)}")
            after = [text(await strong.call_tool(*read)) for read in (("TaskList", {}), ("CronList", {}))]
            assert (before, work.schedule in after[1]) == (after, True)
            # A note that no such work waits for stays everybody's.
            changed = await equal.call_tool("TaskUpdate", {"task_id": own, "status": "completed"})
            assert not changed.is_error, text(changed)
        command = [*setup.command, "--permission-mode", "read-only"]
        at = command.index("--permission-mode")
        arguments = json.dumps({"task_id": work.waits_for, "status": "completed"})
        line = [*command[:at], "call", "TaskUpdate", arguments, *command[at:]]
        ended = subprocess.run(line, env=setup.environment, capture_output=True, check=False, timeout=60)
        assert (ended.returncode, b"danger-full-access" in ended.stderr + ended.stdout) == (1, True)
        assert wrong == []
        for arguments in (
            {"task_id": work.tasks["agent"], "message": "x"},
            {"task_id": work.tasks["agent"], "add_blocked_by": [work.tasks["running command"]]},
            {"task_id": work.tasks["note"], "status": "completed"},
            {"task_id": work.waits_for, "status": "completed"},
        ):
            changed = await equal.call_tool("TaskUpdate", arguments)
            assert not changed.is_error, text(changed)
        assert not (await equal.call_tool("CronDelete", {"cron_id": work.schedule})).is_error
        stopped = await equal.call_tool("TaskStop", {"task_id": work.tasks["agent"]})
        assert not stopped.is_error, text(stopped)
        assert not (await strong.call_tool("TaskStop", {"task_id": work.tasks["running command"]})).is_error


async def test_what_a_client_removes_from_its_folders_is_lost_to_its_work_and_its_undo(setup: Setup) -> None:
    kept, removed = setup.root / "kept", setup.root / "part"
    works = [kept, removed]

    async def roots(_: object) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root.model_validate({"uri": one.as_uri()}) for one in works])

    async with connected(replace(setup, mode="workspace-write"), list_roots_callback=roots) as client:

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
