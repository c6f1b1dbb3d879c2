"""Plan mode, through real servers and clients in both eras: what it refuses, and who ends it."""

import os
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.runtime.plan.plan_modes import KEPT_SECONDS, MAX_CHARACTERS, OwnerPlans, PlanModes
from mcp_toolserver.runtime.processes.broker_client import Writers
from tests.plan.planning import Human
from tests.support.confinement import visible_folder
from tests.support.live import Setup, SharedServers, connected, connected_to, text
from tests.support.processes import until
from tests.support.workbench import Person, call
from tests.support.workshop import workshop

PLAN = "1. Change `a.py`.\n2. Run the tests."


in_session = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def setup(shared: SharedServers) -> Setup:
    """Of a server that tests share, with one file in the root."""
    made = shared.setup("workspace-write", "--structured")
    for path in made.root.iterdir():
        path.unlink()
    (made.root / "a.py").write_text("x = 1\n", encoding="utf-8")
    return made


async def entered(client: Client) -> dict[str, Any]:
    result = await client.call_tool("EnterPlanMode", {})
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    return result.structured_content


async def writes(client: Client) -> list[str]:
    """Tries to write in every way that a session has; returns what was not refused."""
    ways: dict[str, dict[str, Any]] = {
        "write_file": {"path": "new.txt", "content": "x"},
        "edit_file": {"path": "a.py", "old_string": "x", "new_string": "y"},
        "mkdir": {"path": "made"},
        "apply_patch": {"patch": "*** Begin Patch\n*** Add File: p.txt\n+x\n*** End Patch\n"},
        "CallTool": {"name": "write_file", "arguments": {"path": "new.txt", "content": "x"}},
        "bash": {"command": "touch made-by-shell"},
        "REPL": {"language": "python", "code": "open('made-by-repl', 'w')"},
    }
    found: list[str] = []
    for name, arguments in ways.items():
        result = await client.call_tool(name, arguments)
        refused = result.is_error and "plan mode" in text(result)
        if not refused and "Read-only file system" not in text(result):
            found.append(f"{name}: {text(result)}")
    return found


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


@pytest.mark.requirement("GR-72")
@in_session
async def test_nothing_but_the_plan_is_written_until_a_human_approves_it(
    shared: SharedServers, setup: Setup
) -> None:
    human = Human("Keep planning")
    async with connected_to(shared.url(setup), "http", mode="auto", elicitation_callback=human) as client:
        before = [tool.model_dump_json() for tool in (await client.list_tools()).tools]
        state = await entered(client)
        assert state["active"]
        assert state["changed"]
        assert (await entered(client)) == {**state, "changed": False}
        assert [tool.model_dump_json() for tool in (await client.list_tools()).tools] == before
        assert await writes(client) == []
        shown = await client.call_tool("bash", {"command": "cat a.py"})
        assert "x = 1" in text(shown)
        assert names(setup.root) == {"a.py"}

        path = state["plan_path"]
        empty = await client.call_tool("ExitPlanMode", {})
        assert "There is no plan to approve" in text(empty)
        assert not (await client.call_tool("write_file", {"path": path, "content": PLAN})).is_error
        other = await client.call_tool("write_file", {"path": f"{path}.txt", "content": "x"})
        assert "plan mode" in text(other)
        assert PLAN.splitlines()[0] in text(await client.call_tool("read_file", {"path": path}))

        refused = await client.call_tool("ExitPlanMode", {})
        assert refused.structured_content == {"decision": "refused", "active": True, "plan": PLAN}
        assert PLAN in human.saw[-1].message
        assert await writes(client) == []
        human.says = [None]
        assert (await client.call_tool("ExitPlanMode", {"plan": PLAN, "approved": True})).is_error
        assert (await client.call_tool("write_file", {"path": "new.txt", "content": "x"})).is_error
        wrong = await client.call_tool("ExitPlanMode", {"plan": PLAN, "plan_id": "plan_000000"})
        assert "not in plan mode" in text(wrong)

        human.says = ["Approve"]
        approved = await client.call_tool("ExitPlanMode", {"plan_id": state["plan_id"]})
        assert PLAN in text(approved)
        assert not (await client.call_tool("write_file", {"path": "new.txt", "content": "x"})).is_error
        assert not (await client.call_tool("bash", {"command": "touch made-by-shell"})).is_error
        assert names(setup.root) == {"a.py", "new.txt", "made-by-shell"}
        gone = await client.call_tool("read_file", {"path": path})
        assert gone.is_error
        assert (await client.call_tool("ExitPlanMode", {"plan": PLAN})).is_error


LISTENER = """
import socket, subprocess
with socket.create_server(("127.0.0.1", 8765)) as server:
    for number in range(1000):
        with server.accept()[0] as one:
            subprocess.run(one.recv(99), shell=True)
            one.sendall(b"run %d" % number)
"""

READER = (
    "mkfifo /tmp/fifo; (setsid sh -c 'while :; do echo x >> ticks; sleep 0.02; done' &) ; "
    'while :; do sh -c "$(cat /tmp/fifo)"; done'
)
"""With a child that has left it."""

THREAD = """
import threading, time
def tick():
    while True:
        print("x", file=open("ticks-of-session", "a"))
        time.sleep(0.02)
threading.Thread(target=tick, daemon=True).start()
"""

SENDER = """
import socket, sys
with socket.create_connection(("127.0.0.1", 8765), timeout=1) as one:
    one.sendall(b"touch by-socket-" + sys.argv[1].encode())
    print(one.recv(99).decode())
"""


@pytest.fixture
def visible() -> Generator[Setup]:
    """Of a server whose commands share a folder /tmp, which they do not if the root lies there."""
    with visible_folder() as folder:
        yield Setup.below(folder, "workspace-write")


async def test_what_runs_is_suspended_and_cannot_be_used_to_write(visible: Setup) -> None:
    root = visible.root
    for name, code in (("listener.py", LISTENER), ("sender.py", SENDER)):
        (root / name).write_text(code, encoding="utf-8")

    async def bash(command: str, **more: Any) -> str:
        return text(await client.call_tool("bash", {"command": command, **more}))

    async def send(number: int) -> str:
        """Ask what was started before to write; what the listener answers."""
        await bash(f"echo 'touch by-fifo-{number}' | timeout 1 tee /tmp/fifo")
        return await bash(f"python3 sender.py {number}")

    def written() -> list[int]:
        return [(root / name).stat().st_size for name in ("ticks", "ticks-of-session")]

    async with connected(visible, elicitation_callback=Human("Approve")) as client:
        commands = ("python3 listener.py", READER, "sleep 1000")
        jobs = [handle(await bash(command, run_in_background=True), "bg_") for command in commands]
        arguments = {"language": "python", "code": THREAD, "session": "new"}
        session = handle(text(await client.call_tool("REPL", arguments)), "repl_")
        await until(lambda: (root / "ticks").exists() and (root / "ticks-of-session").exists())
        with anyio.fail_after(20):
            while "run 0" not in await bash("python3 sender.py 1"):
                pass
        assert "run 1" in await send(2)
        await until(lambda: (root / "by-fifo-2").exists())
        assert (root / "by-socket-2").exists()

        begun = text(await client.call_tool("EnterPlanMode", {}))
        assert "(4): " in begun
        assert all(name in begun for name in (*jobs, session)), begun
        before = written()
        again = {"language": "python", "code": "open('x', 'w')", "session": session}
        assert "started with the right to write" in text(await client.call_tool("REPL", again))
        assert "run" not in await send(3)
        assert "suspended" in text(await client.call_tool("TaskOutput", {"task_id": jobs[0], "until": "now"}))
        assert "stopped" in text(await client.call_tool("TaskStop", {"task_id": jobs[2]}))
        assert written() == before
        assert not [*root.glob("by-*-3"), *root.glob("x")]

        ended = text(await client.call_tool("ExitPlanMode", {"plan": PLAN}))
        assert all(name in ended for name in (*jobs[:2], session)), ended
        assert jobs[2] not in ended
        await until(lambda: all(now > then for now, then in zip(written(), before, strict=True)))
        # It goes on where it was: what was sent meanwhile comes before this.
        assert "run 3" in await send(4)
        await until(lambda: (root / "by-fifo-4").exists())
        assert "(3): " in text(await client.call_tool("EnterPlanMode", {}))


def handle(said: str, prefix: str) -> str:
    return next(word.strip("[].;,:") for word in said.split() if word.startswith(prefix))


@in_session
async def test_plan_mode_of_one_connection_is_not_that_of_another_and_does_not_begin_where_nobody_can_end_it(
    shared: SharedServers, setup: Setup
) -> None:
    url = shared.url(setup)
    async with (
        connected_to(url, "http", mode="legacy", elicitation_callback=Human("Approve")) as one,
        connected_to(url, "http", mode="legacy") as other,
    ):
        state = await entered(one)
        refused = await other.call_tool("EnterPlanMode", {})
        assert refused.is_error
        assert "nobody can be asked" in text(refused)
        assert not (await other.call_tool("write_file", {"path": "b", "content": "x"})).is_error
        hidden = await other.call_tool("read_file", {"path": state["plan_path"]})
        assert hidden.is_error
        assert (await other.call_tool("ExitPlanMode", {"plan": PLAN})).is_error
        assert (await one.call_tool("write_file", {"path": "c", "content": "x"})).is_error


async def test_in_a_read_only_server_the_plan_is_passed(tmp_path: Path) -> None:
    human = Person(answers=(("Approve",),))
    async with workshop(tmp_path, Permission.READ_ONLY) as at:
        assert "write_file" not in (await call(at, "EnterPlanMode", human)).text
        assert "write_file" not in (await call(at, "ExitPlanMode", human)).text
        assert "The user approved" in (await call(at, "ExitPlanMode", human, plan=PLAN)).text


@pytest.fixture
def modes(tmp_path: Path) -> Callable[[], PlanModes]:
    return lambda: PlanModes(str(tmp_path / "state"), Narrowings(), Writers(), Permission.WORKSPACE_WRITE)


async def test_a_plan_that_nobody_can_read_is_not_shown(modes: Callable[[], PlanModes]) -> None:
    plans = OwnerPlans(modes(), "somebody")
    path = Path((await plans.enter()).path)
    for content, words in (
        (b"\xff", "not UTF-8"),
        (b"x" * (MAX_CHARACTERS + 1), "more than"),
        ("ü".encode() * 5 * 10**6, "more than"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=words):
            await plans.read()


async def test_plan_files_end_with_their_session_and_old_ones_are_removed(
    modes: Callable[[], PlanModes], tmp_path: Path
) -> None:
    first, folder = modes(), tmp_path / "state" / "plans"
    plans = OwnerPlans(first, "somebody")
    mode = await plans.enter()
    await plans.leave("plan_of_another")
    assert await plans.current("") == replace(mode, is_new=False)
    old = folder / "old"
    old.mkdir()
    (old / "plan.md").touch()
    seconds = old.stat().st_mtime - KEPT_SECONDS - 60
    os.utime(old, (seconds, seconds))
    await OwnerPlans(first, "another").enter()
    assert not old.exists()
    first.forget("somebody")
    first.forget("somebody")
    assert not Path(mode.path).parent.exists()
    first.close()
    assert list(folder.iterdir()) == []


async def test_without_a_state_folder_plan_mode_does_not_begin(
    modes: Callable[[], PlanModes], tmp_path: Path
) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(Unavailable, match="has not begun"):
        await OwnerPlans(modes(), "somebody").enter()
