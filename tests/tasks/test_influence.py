"""Who lacks a right with which deferred work runs may read the work, and change nothing about it."""

import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as mcp

from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from tests.support.live import Setup, connected, text
from tests.support.workbench import Person
from tests.tasks.schedules import application, call_by, create
from tests.tasks.test_board import ID, task
from tests.tasks.test_board_served import ended, name_of

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
