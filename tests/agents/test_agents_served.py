"""Agents of the installed program, in its own confined process."""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agents.agents import HANDLE, Call, Says, model_api
from tests.agents.test_agent_rights import WRITES
from tests.agents.test_run_task_packet import PACKET
from tests.support.calling import held
from tests.support.confinement import git
from tests.support.live import ERAS, TRANSPORTS, Setup, connected, connected_to, serving, text
from tests.support.processes import arguments, processes
from tests.tasks.test_cron_served import ended, set_back

TASK = {"description": "a test", "prompt": "go"}


def setup(folder: Path, url: str, mode: str) -> Setup:
    """How to start a server whose agents have the model at `url`."""
    made = Setup.below(folder, mode)
    config = made.home / "config.toml"
    config.write_text(
        f'[agent]\nprovider = "openai"\nbase-url = "{url}"\nmodel = "scripted"\n', encoding="utf-8"
    )
    (made.root / "a.txt").write_bytes(b"old\n")
    return Setup(root=made.root, home=made.home, mode=mode, flags=("--config", str(config)))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_reading_agent_changes_nothing_on_any_transport(
    era: str, transport: str, tmp_path: Path
) -> None:
    scripts: Mapping[str, Sequence[Says]] = {"go": [Says(calls=WRITES), Says("I could not.")]}
    with model_api(scripts) as model:
        at = setup(tmp_path, model.url, "workspace-write")
        before = held(at.root)
        async with connected(at, transport, era) as client:
            result = await client.call_tool("Agent", {**TASK, "subagent_type": "Explore"})
            assert text(result).startswith("I could not.")
        assert all("the agent type Explore allows" in reply for reply in model.requests[-1].results)
        assert held(at.root) == before


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_an_agent_writes_where_its_server_may(mode: str, tmp_path: Path) -> None:
    with model_api({"go": [Says(calls=WRITES), Says("Done.")]}) as model:
        at = setup(tmp_path, model.url, mode)
        before = held(at.root)
        async with connected(at) as client:
            assert text(await client.call_tool("Agent", TASK)).startswith("Done.")
        assert (held(at.root) == before) == (mode == "read-only")


async def test_the_prompts_of_tasks_and_schedules_run_as_agents(tmp_path: Path) -> None:
    scripts: Mapping[str, Sequence[Says]] = {
        "the task": [Says(calls=WRITES), Says("The task is done.")],
        "the schedule": [Says(calls=[Call(tool="ls")]), Says("The schedule is done.")],
    }
    with model_api(scripts) as model:
        at = setup(tmp_path, model.url, "workspace-write")
        async with connected(at) as client:
            made = await client.call_tool("TaskCreate", {"prompt": "the task"})
            assert made.structured_content is not None, text(made)
            said = await client.call_tool(
                "TaskOutput", {"task_id": made.structured_content["task"]["task_id"]}
            )
            assert "The task is done." in text(said)
            assert (at.root / "a.txt").read_bytes() != b"old\n"
            arguments = {
                "schedule": "@hourly",
                "prompt": "the schedule",
                "time_zone": "UTC",
                "catch_up": True,
            }
            assert not (await client.call_tool("CronCreate", arguments)).is_error
        await set_back(at)
        async with connected(at):
            run = await ended(at)
        assert run.outcome == "succeeded"
        assert run.output.startswith("The schedule is done.")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_task_packet_runs_as_an_agent_on_any_transport(
    era: str, transport: str, tmp_path: Path
) -> None:
    packet = {**PACKET, "scope_path": "a.txt"}
    with model_api({"Objective": [Says(calls=WRITES), Says("Changed as asked.")]}) as model:
        at = setup(tmp_path, model.url, "danger-full-access")
        async with connected(at, transport, era) as client:
            made = await client.call_tool("RunTaskPacket", packet)
            assert made.structured_content is not None, text(made)
            name = made.structured_content["task"]["task_id"]
            assert "Changed as asked." in text(await client.call_tool("TaskOutput", {"task_id": name}))
        prompt = model.requests[0].prompt
        assert [line for line in prompt.splitlines() if line.startswith("- ")] == [
            f"- {wanted}" for wanted in PACKET["acceptance_tests"]
        ]
        assert (at.root / "a.txt").read_bytes() != b"old\n"


async def test_the_commands_of_an_isolated_agent_see_its_worktree_only(tmp_path: Path) -> None:
    scripts: dict[str, Sequence[Says]] = {}
    with model_api(scripts) as model:
        at = setup(tmp_path, model.url, "workspace-write")
        git(at.root, "init", "--quiet", "--initial-branch=main")
        git(at.root, "add", "a.txt")
        git(at.root, "commit", "--quiet", "--message=first")
        (at.root / "elsewhere.txt").write_text("of the user\n", encoding="utf-8")
        outside = f"cat {at.root}/elsewhere.txt; ls -a {at.root}; echo x > {at.root}/planted"
        command = f"cat a.txt; {outside}; echo y > mine"
        scripts["go"] = [Says(calls=[Call(tool="bash", arguments={"command": command})]), Says("Done.")]
        async with connected(at) as client:
            done = await client.call_tool("Agent", {**TASK, "isolation": "worktree"})
            assert text(done).startswith("Done."), text(done)
        result = model.requests[-1].results[0]
        assert result.startswith("old\n")
        assert "of the user" not in result
        assert not (at.root / "planted").exists()
        assert len(list(at.root.glob(".worktrees/*/mine"))) == 1


def kill(at: Setup) -> None:
    """Kill a server and its helpers, which have its arguments."""
    for pid in processes():
        if str(at.home / "state") in arguments(pid):
            # The helpers end with the server.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_after_a_kill_the_next_server_says_which_agents_ended_with_it(tmp_path: Path) -> None:
    never = threading.Event()
    script = [
        Says("So far.", [Call(tool="ls")]),
        Says("Too late.", after=never),
    ]
    try:
        with model_api({"go": script}) as model:
            at = setup(tmp_path, model.url, "danger-full-access")
            with serving(at, "http") as url:
                async with connected_to(url, "http", mode="auto") as client:
                    started = text(await client.call_tool("Agent", {**TASK, "run_in_background": True}))
                    handle = HANDLE.findall(started)[0]
                    await model.has_been_asked(2, "go")
                    kill(at)
            with serving(at, "http") as url:
                async with connected_to(url, "http", mode="auto") as client:
                    said = text(await client.call_tool("TaskOutput", {"task_id": handle}))
            assert said.startswith("So far.\n")
            assert "ended with the server that ran it; 1 turn" in said
    finally:
        never.set()
