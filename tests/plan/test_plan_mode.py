"""Plan mode, through real servers and clients in both eras: what it refuses, and who ends it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.runtime.plan.plan_modes import KEPT_SECONDS, MAX_CHARACTERS, OwnerPlans, PlanModes
from tests.support.live import ERAS, Setup, connected, connected_to, serving, text

PLAN = "1. Change `a.py`.\n2. Run the tests."


class Human:
    """Answers every question in the same way, and remembers the questions."""

    def __init__(self, decision: str | None) -> None:
        self.decision = decision
        self.saw: list[str] = []

    async def __call__(self, _: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        self.saw.append(params.message)
        if self.decision is None:
            return mcp.ElicitResult(action="decline")
        return mcp.ElicitResult(action="accept", content={"answer_1": self.decision})


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    made = Setup.below(tmp_path, "workspace-write")
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


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_nothing_but_the_plan_is_written_until_a_human_approves_it(
    setup: Setup, era: str, transport: str
) -> None:
    human = Human("Keep planning")
    async with connected(setup, transport, era, elicitation_callback=human) as client:
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
        assert PLAN in human.saw[-1]
        assert await writes(client) == []
        human.decision = None
        assert (await client.call_tool("ExitPlanMode", {"plan": PLAN})).is_error
        assert await writes(client) == []
        wrong = await client.call_tool("ExitPlanMode", {"plan": PLAN, "plan_id": "plan_000000"})
        assert "not in plan mode" in text(wrong)

        human.decision = "Approve"
        approved = await client.call_tool("ExitPlanMode", {"plan_id": state["plan_id"]})
        assert PLAN in text(approved)
        assert not (await client.call_tool("write_file", {"path": "new.txt", "content": "x"})).is_error
        assert not (await client.call_tool("bash", {"command": "touch made-by-shell"})).is_error
        assert names(setup.root) == {"a.py", "new.txt", "made-by-shell"}
        gone = await client.call_tool("read_file", {"path": path})
        assert gone.is_error
        assert (await client.call_tool("ExitPlanMode", {"plan": PLAN})).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_human_plan_mode_goes_on(setup: Setup, era: str) -> None:
    async with connected(setup, era=era) as client:
        await entered(client)
        said = await client.call_tool("ExitPlanMode", {"plan": PLAN})
        assert "No human can be asked" in text(said)
        assert await writes(client) == []


async def test_a_session_that_could_write_is_not_used_to_get_around_plan_mode(setup: Setup) -> None:
    async with connected(setup) as client:
        started = await client.call_tool("REPL", {"language": "python", "code": "1", "session": "new"})
        handle = next(word.strip("[].;,:") for word in text(started).split() if word.startswith("repl_"))
        await entered(client)
        again = await client.call_tool(
            "REPL", {"language": "python", "code": "open('x', 'w')", "session": handle}
        )
        assert "started with the right to write" in text(again)
        assert names(setup.root) == {"a.py"}


async def test_plan_mode_of_one_connection_is_not_that_of_another(setup: Setup) -> None:
    with serving(setup, "http") as url:
        async with (
            connected_to(url, "http", mode="legacy") as one,
            connected_to(url, "http", mode="legacy") as other,
        ):
            state = await entered(one)
            assert not (await other.call_tool("write_file", {"path": "b", "content": "x"})).is_error
            hidden = await other.call_tool("read_file", {"path": state["plan_path"]})
            assert hidden.is_error
            assert (await other.call_tool("ExitPlanMode", {"plan": PLAN})).is_error
            assert (await one.call_tool("write_file", {"path": "c", "content": "x"})).is_error


async def test_in_a_read_only_server_the_plan_is_passed(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path)
    async with connected(setup, elicitation_callback=Human("Approve")) as client:
        said = await client.call_tool("EnterPlanMode", {})
        assert "write_file" not in text(said)
        assert "write_file" not in text(await client.call_tool("ExitPlanMode", {}))
        assert "The user approved" in text(await client.call_tool("ExitPlanMode", {"plan": PLAN}))


@pytest.fixture
def modes(tmp_path: Path) -> Callable[[], PlanModes]:
    return lambda: PlanModes(str(tmp_path / "state"), Narrowings(), ceiling=Permission.WORKSPACE_WRITE)


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
    mode = first.enter("somebody")
    first.leave("somebody", "plan_of_another")
    assert first.of("somebody") is not None
    old = folder / "old"
    old.mkdir()
    (old / "plan.md").touch()
    seconds = old.stat().st_mtime - KEPT_SECONDS - 60
    os.utime(old, (seconds, seconds))
    first.enter("another")
    assert not old.exists()
    first.forget("somebody")
    first.forget("somebody")
    assert not Path(mode.path).parent.exists()
    first.close()
    assert list(folder.iterdir()) == []


def test_without_a_state_folder_plan_mode_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(Unavailable, match="has not begun"):
        PlanModes(str(tmp_path / "state"), Narrowings(), ceiling=Permission.READ_ONLY).enter("somebody")
