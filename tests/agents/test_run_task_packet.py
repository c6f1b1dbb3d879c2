"""Tasks with a prompt, which an agent runs, and task packets."""

import threading
from typing import Any

import pytest

from tests.agents.agents import HANDLE, Agents, Call, Says
from tests.tasks.test_board import call, created, ended, task

PACKET: dict[str, Any] = {
    "objective": "Raise the rate to 20",
    "scope": "single_file",
    "scope_path": "src/shop.py",
    "repo": "shop",
    "branch_policy": "stay on main",
    "acceptance_tests": ["pytest -q", "the README names 20"],
    "commit_policy": "do not commit",
    "reporting_contract": "name the lines that changed",
    "escalation_policy": "stop if a test fails for another reason",
}
EXAMPLE = PACKET


@pytest.mark.asyncio(loop_scope="session")
async def test_a_prompt_runs_as_an_agent_with_the_messages_that_came_before(at: Agents) -> None:
    at.plays(
        {
            "Look at a.py": [Says("I looked.")],
            "fail": [Says(status=400)],
            "half": [Says("I start.", [Call(tool="ls")]), Says(status=400)],
        }
    )
    blocker = await created(at.server, subject="wait")
    name = await created(at.server, prompt="Look at a.py", description="Look", blocked_by=[blocker])
    await call(at.server, "TaskUpdate", task_id=name, message="And at b.py")
    await call(at.server, "TaskUpdate", task_id=blocker, status="completed")
    said = HANDLE.sub("agent_x", await ended(at.server, name))
    assert said == "I looked.\n[agent_x finished; 1 turn, 15 tokens]\n[completed; next offset 58]"
    assert [one.said for one in at.model.requests] == [("Look at a.py\n\nAnd at b.py",)]
    # An agent that fails fails its task.
    name = await created(at.server, prompt="fail")
    said = await ended(at.server, name)
    assert said.startswith("[failed: ")
    assert said.endswith("; next offset 0]")
    # So does one that said something before, and what waits for it does not run.
    name = await created(at.server, prompt="half")
    last = await created(at.server, command="touch ran", description="Run", blocked_by=[name])
    said = await ended(at.server, name)
    assert said.startswith("I start.\n[to go on, call Agent with resume: agent_")
    assert "[failed: agent_" in said
    assert task(await call(at.server, "TaskGet", task_id=last))["status"] == "blocked"
    assert not (at.root / "ran").exists()


@pytest.mark.asyncio(loop_scope="session")
async def test_a_running_agent_shows_its_progress_and_is_stopped(at: Agents, gate: threading.Event) -> None:
    at.plays({"go": [Says("I look.", [Call(tool="ls")]), Says("Too late.", after=gate)]})
    before = {*at.jobs.agents.running}
    name = await created(at.server, prompt="go")
    await at.model.has_been_asked(2, "go")
    live = await call(at.server, "TaskOutput", task_id=name, until="now")
    assert live.text.startswith("[running for ")
    assert live.text.endswith("turn 2: waits for its model; next offset 0]")
    stopped = await call(at.server, "TaskStop", task_id=name)
    assert stopped.text == f"{name}: cancelled: It was stopped with TaskStop; 0 bytes of output."
    assert {*at.jobs.agents.running} <= before


@pytest.mark.asyncio(loop_scope="session")
async def test_a_packet_becomes_a_task_with_a_prompt(at: Agents) -> None:
    at.plays({"Objective": [Says("Done.")]})
    made = task(await call(at.server, "RunTaskPacket", **PACKET))
    assert made["subject"] == PACKET["objective"]
    assert made["prompt"] == (
        "Objective: Raise the rate to 20\n"
        "Scope: single_file\n"
        "Path: src/shop.py\n"
        "Repository: shop\n"
        "Branch policy: stay on main\n"
        "Commit policy: do not commit\n"
        "What to report: name the lines that changed\n"
        "When to stop and report instead of going on: stop if a test fails for another reason\n"
        "Done when all of this succeeds:\n"
        "- pytest -q\n"
        "- the README names 20"
    )
    assert "completed" in await ended(at.server, made["task_id"])
    custom = {**PACKET, "scope": "custom", "scope_path": None}
    assert (await call(at.server, "RunTaskPacket", **custom)).error is None
    # All that is wrong with one is said at once.
    wrong = {**PACKET, "objective": " ", "scope": "galaxy", "acceptance_tests": ["a", ""], "repo": None}
    refused = await call(at.server, "RunTaskPacket", **wrong)
    assert refused.error == "invalid_input"
    assert (
        "objective must not be empty; repo must not be empty; "
        "scope must be one of workspace, module, single_file, custom; "
        "acceptance_tests[1] must not be empty"
    ) in refused.text
    wrong = {**PACKET, "scope_path": "", "acceptance_tests": []}
    refused = await call(at.server, "RunTaskPacket", **wrong)
    assert "scope_path is required for scope single_file" in refused.text
    assert "acceptance_tests must name at least one test" in refused.text
    # What is no packet is left to validation.
    refused = await call(at.server, "RunTaskPacket", **{**PACKET, "acceptance_tests": "pytest", "scope": 3})
    assert refused.error == "invalid_input"
