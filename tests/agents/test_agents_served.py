"""Agents of the installed program, in its own confined process."""

import os
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import HANDLE, Call, Says, model_api
from tests.agents.test_agent_rights import WRITES
from tests.agents.test_agent_worktree import repository
from tests.agents.test_run_task_packet import PACKET
from tests.support.calling import held
from tests.support.live import Messages, Setup, connected_to, serving, text
from tests.support.processes import arguments, processes

TASK = {"description": "a test", "prompt": "go"}


def setup(folder: Path, url: str, mode: str) -> Setup:
    """How to start a server whose agents have the model at `url`."""
    config = folder / "home/config.toml"
    made = Setup.below(folder, mode, "--config", str(config))
    config.write_text(
        f'[agent]\nprovider = "openai"\nbase-url = "{url}"\nmodel = "scripted"\n', encoding="utf-8"
    )
    (made.root / "a.txt").write_bytes(b"old\n")
    return made


@pytest.mark.requirement("SW-67", "GR-29")
async def test_a_reading_agent_changes_nothing_another_writes_and_an_isolated_one_sees_its_worktree_only(
    tmp_path: Path,
) -> None:
    """One server for all three, because each imports the library of its model. Over the wire the protocol
    generations differ in nothing of this; `test_agent.py` has both."""
    root = tmp_path / "root"
    command = f"cat a.txt; cat {root}/elsewhere.txt; ls -a {root}; echo x > {root}/planted; echo y > mine"
    scripts = {
        "go": [Says(calls=WRITES), Says("I could not.")],
        "quick": [Says("Done.")],
        "apart": [Says(calls=[Call(tool="bash", arguments={"command": command})]), Says("Done.")],
    }
    heard = Messages()
    with model_api(scripts) as model, serving(setup(tmp_path, model.url, "workspace-write"), "http") as url:
        before = held(root)
        # The first agent waits for the library of its model.
        options: dict[str, Any] = {"mode": "legacy", "read_timeout_seconds": 120}
        async with connected_to(url, "http", logging_callback=heard.take, **options) as client:
            result = await client.call_tool("Agent", {**TASK, "subagent_type": "Explore"})
            assert text(result).startswith("I could not.")
            replies = model.requests[-1].results
            assert all("the agent type Explore allows" in reply for reply in replies)
            assert held(root) == before
            await client.call_tool("Agent", TASK)
            assert held(root) == {**before, "a.txt": b"changed\n", "b.txt": b"new"}
            quick = {**TASK, "prompt": "quick", "run_in_background": True}
            (handle,) = set(HANDLE.findall(text(await client.call_tool("Agent", quick))))
            assert await heard.message() == f"{handle} (a test) finished"
            (root / "b.txt").unlink()
            repository(root)
            (root / "elsewhere.txt").write_text("of the user\n", encoding="utf-8")
            done = await client.call_tool("Agent", {**TASK, "prompt": "apart", "isolation": "worktree"})
            assert text(done).startswith("Done."), text(done)
        result = model.requests[-1].results[0]
    assert result.startswith("old\n")
    assert "of the user" not in result
    assert not (root / "planted").exists()
    assert len(list(root.glob(".worktrees/*/mine"))) == 1


def kill(at: Setup) -> None:
    """Kill a server and its helpers, which have its arguments."""
    for pid in processes():
        if str(at.home / "state") in arguments(pid):
            # The helpers end with the server.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.long  # two servers, of which each imports the library of its model
async def test_a_task_packet_runs_as_an_agent_and_after_a_kill_the_next_server_says_what_ended(
    tmp_path: Path, gate: threading.Event
) -> None:
    """One server for both, because each imports the library of its model."""
    scripts = {
        "Objective": [Says(calls=WRITES), Says("Changed as asked.\nOUTCOME: done")],
        "go": [
            Says("So far.", [Call(tool="bash", arguments={"command": "pwd; echo x > mine"})]),
            Says(calls=[Call(tool="bash", arguments={"command": "pwd"})], after=gate),
            Says("Done."),
        ],
    }
    with model_api(scripts) as model:
        at = setup(tmp_path, model.url, "danger-full-access")
        with serving(at, "http") as url:
            async with connected_to(url, "http", mode="auto") as client:
                made = await client.call_tool("RunTaskPacket", {**PACKET, "scope_path": "a.txt"})
                (name,) = set(re.findall(r"task_[0-9a-f]{8}", text(made)))
                assert "Changed as asked." in text(await client.call_tool("TaskOutput", {"task_id": name}))
                wanted = [line for line in model.requests[0].prompt.splitlines() if line.startswith("- ")]
                assert wanted == [f"- {test}" for test in PACKET["acceptance_tests"]]
                assert (at.root / "a.txt").read_bytes() != b"old\n"
                repository(at.root)
                apart = {**TASK, "run_in_background": True, "isolation": "worktree"}
                handle = HANDLE.findall(text(await client.call_tool("Agent", apart)))[0]
                await model.has_been_asked(2, "go")
                kill(at)
        with serving(at, "http") as url:
            async with connected_to(url, "http", mode="auto") as client:
                said = text(await client.call_tool("TaskOutput", {"task_id": handle}))
                gate.set()
                resumed = text(await client.call_tool("Agent", {**TASK, "resume": handle}))
        place = str(at.root / ".worktrees" / handle)
        assert f"its work is in the worktree {place}, branch worktree-{handle}; ExitWorktree" in said
        assert [result.split("\n")[0] for result in model.requests[-1].results] == [place, place]
        assert "0 commits; changed files: mine (1 not committed)" in resumed
        assert said.startswith("So far.\n[to go on, call Agent with resume: agent_")
        assert "ended with the server that ran it; 1 turn" in said
        assert resumed.startswith("Done.\n")
