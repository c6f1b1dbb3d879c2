"""Tasks with a prompt, which an agent runs, and task packets."""

import threading
from typing import Any

import pytest

from tests.agents.agents import HANDLE, Agents, Call, Says
from tests.tasks.schedules import scheduled
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
            "Look at a.py": [Says("I looked.\nOUTCOME: done")],
            "fail": [Says("I begin.", [Call(tool="ls")]), Says(status=400)],
        }
    )
    blocker = await created(at.server, subject="wait")
    name = await created(at.server, prompt="Look at a.py", description="Look", blocked_by=[blocker])
    await call(at.server, "TaskUpdate", task_id=name, message="And at b.py")
    await call(at.server, "TaskUpdate", task_id=blocker, status="completed")
    said = HANDLE.sub("agent_x", await ended(at.server, name))
    assert said.startswith("I looked.\nOUTCOME: done\n[agent_x finished; 1 turn, 15 tokens]\n[completed; ")
    assert at.model.requests[0].prompt.startswith("Look at a.py\n\nAnd at b.py\n\nEnd your last answer with")
    # An agent that fails fails its task, and whoever has the task can go on with the agent.
    name = await created(at.server, prompt="fail")
    said = await ended(at.server, name)
    assert "[failed: Its agent failed: The model's provider answered 400" in said
    at.plays({"fail": [Says(), Says("It works.")]})
    (handle,) = {*HANDLE.findall(said)}
    again = await at.agent("Go on.", resume=handle)
    assert again.error is None, again.text
    assert at.model.requests[0].said[-1] == "Go on."


WORDS = (
    "I am blocked: the registry needs a password.",
    "Done? No: two tests fail.",
    "OUTCOME: I do not know",
)
"""What agents say whose work is not done. When they are asked, they say it again."""

ENDS = {
    **{text: [Says(text), Says(text)] for text in WORDS},
    "done": [Says("It works.\n\n**OUTCOME: done**")],
    "asked": [Says("It works."), Says("outcome: done")],
    "changed": [Says("OUTCOME: failed, at first.\nNow it works.\nOUTCOME: done")],
    "failed": [Says("The tests fail.\nOUTCOME: failed")],
    "blocked": [Says("I need a key.\nOUTCOME: blocked")],
    "asked and failed": [Says("The tests fail."), Says("OUTCOME: failed")],
    "quoted": [Says("Then I say `OUTCOME: done` to you."), Says("No.")],
    "other": [Says("OUTCOME: done, but for the tests"), Says("OUTCOME: nearly")],
    "both": [Says("OUTCOME: done\nNo, wait.\nOUTCOME: failed")],
    "silent": [Says("I see."), Says("")],
    "gone": [Says("I see."), Says(status=400)],
    "cut": [Says("OUTCOME: done", is_cut=True)],
}
SUCCEED = ("done", "asked", "changed")


@pytest.mark.asyncio(loop_scope="session")
async def test_only_an_agent_that_states_that_its_work_is_done_completes_a_task_or_a_schedule(
    at: Agents,
) -> None:
    at.plays({f"{name}!": says for name, says in ENDS.items()})
    for name in ENDS:
        first = await created(at.server, prompt=f"{name}!")
        assert ("[failed: Its agent " in await ended(at.server, first)) == (name not in SUCCEED), name
    # What waits for a task, and schedules, see the same end.
    for name in ("done", "failed", "silent"):
        first = await created(at.server, prompt=f"{name}!")
        after = await created(at.server, command=f"touch '{name}'", description="Go on", blocked_by=[first])
        run = await scheduled(at.server, f"{name}!")
        assert (run.outcome == "succeeded") == (name in SUCCEED), (name, run.output)
        assert ("[completed" in await ended(at.server, after)) == (name in SUCCEED), name
    assert {path.name for path in at.root.iterdir()} == {"done"}
    # What was said is kept, with how it ended.
    assert "I need a key." in (await scheduled(at.server, "blocked!")).output


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
    at.plays({"Objective": [Says("Done.\nOUTCOME: done")]})
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
