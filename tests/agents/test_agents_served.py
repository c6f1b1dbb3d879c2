"""Agents of the installed program, in its own confined process."""

import os
import re
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest

from benchmarks.agent.setups import done_with_ours
from benchmarks.agent.task import Task
from benchmarks.agent.tasks import database, long_job, refactoring, understanding
from mcp_toolserver.commands.doctor import facts
from mcp_toolserver.invocation import load
from tests.agents.agents import HANDLE, Model, Says, Script, bash, model_api
from tests.agents.test_agent_rights import WRITES, repository
from tests.agents.test_run_task_packet import PACKET
from tests.support.calling import held
from tests.support.confinement import visible_folder
from tests.support.live import Messages, Setup, connected, connected_to, serving, text
from tests.support.processes import arguments, processes
from tests.support.workshop import INTERPRETER

TASK = {"description": "a test", "prompt": "go"}
KEY = "sk-canary-5f3a9c"
HOST = "127.91.82.73"
"""An address of loopback that nothing else uses."""


def setup(folder: Path, model: Model, mode: str, *flags: str) -> Setup:
    """How to start a server whose agents have this model. What it says to people is in `stderr` in the
    folder, if it is on stdio."""
    key, config = folder / "home/model-key", folder / "home/config.toml"
    made = Setup.below(folder, mode, "--config", str(config), *flags)
    key.touch(0o600)
    key.write_text(KEY, encoding="utf-8")
    config.write_text(
        f'[agent]\nprovider = "openai"\nbase-url = "{model.url}"\nmodel = "scripted"\nkey-file = "{key}"\n',
        encoding="utf-8",
    )
    (made.root / "a.txt").write_bytes(b"old\n")
    return made


def on_stdio(made: Setup) -> Setup:
    around = ("bash", "-c", 'exec "$@" 2>>"$0"', str(made.home.parent / "stderr"))
    return replace(made, flags=("--log-level", "debug", *made.flags), around=around)


@pytest.mark.requirement("SW-67", "GR-29")
async def test_a_reading_agent_changes_nothing_another_writes_and_an_isolated_one_sees_its_worktree_only(
    tmp_path: Path,
) -> None:
    """The key and the address of the model appear nowhere.

    One server for all, because each imports the library of its model. Over the wire the protocol generations
    differ in nothing of this; `test_agent.py` has both."""
    root, seen = tmp_path / "root", list[str]()
    command = f"cat a.txt; cat {root}/elsewhere.txt; ls -a {root}; echo x > {root}/planted; echo y > mine"
    scripts: dict[str, Script] = {
        "go": [Says(calls=WRITES), Says("I could not.")],
        "quick": [Says("Done.")],
        "apart": [Says(calls=[bash(command)]), Says("Done.")],
        "fail": lambda _: Says(f"the key {KEY} is not for {model.url}", status=401),
    }
    heard = Messages()
    with model_api(scripts, HOST) as model:
        made = on_stdio(setup(tmp_path, model, "workspace-write", "--network", "fetch"))
        before = held(root)
        # The first agent waits for the library of its model.
        async with connected(made, logging_callback=heard.take, read_timeout_seconds=120) as client:

            async def agent(**arguments: object) -> str:
                seen.append(text(await client.call_tool("Agent", {**TASK, **arguments})))
                return seen[-1]

            assert (await agent(subagent_type="Explore")).startswith("I could not.")
            replies = model.requests[-1].results
            assert all("the agent type Explore allows" in reply for reply in replies)
            assert held(root) == before
            await agent()
            assert held(root) == {**before, "a.txt": b"changed\n", "b.txt": b"new"}
            (handle,) = set(HANDLE.findall(await agent(prompt="quick", run_in_background=True)))
            assert await heard.message() == f"{handle} (a test) finished"
            (root / "b.txt").unlink()
            repository(root)
            (root / "elsewhere.txt").write_text("of the user\n", encoding="utf-8")
            assert (await agent(prompt="apart", isolation="worktree")).startswith("Done.")
            result = model.requests[-1].results[0]
            assert "answered 401: check the key" in await agent(prompt="fail")
            assert "choose from scripted" in await agent(model="dear")
            seen.append(str(await client.list_tools()))
            resources = (await client.list_resources()).resources
            seen += [str(await client.read_resource(one.uri)) for one in resources]
            commands = (f"cat {made.home}/model-key", "env; cat /proc/*/environ /proc/*/cmdline")
            seen += [str(await client.call_tool("bash", {"command": one})) for one in commands]
        assert model.asked_of
        assert {asked.headers["authorization"] for asked in model.asked_of.asked} == {f"Bearer {KEY}"}
    assert result.startswith("old\n")
    assert "of the user" not in result
    assert not (root / "planted").exists()
    assert len(list(root.glob(".worktrees/*/mine"))) == 1
    seen.append(str(facts._model(load(["doctor", *made.flags], {}).settings)))
    assert "openai, scripted" in seen[-1]
    show_no_secret(made, seen, HOST)


def show_no_secret(made: Setup, seen: Sequence[str], address: str) -> None:
    """Neither what was seen nor what a server left shows its key or the address of its model."""
    files = [file for file in (made.home / "state").rglob("*") if file.is_file()]
    assert files
    for one in (
        *seen,
        *(file.read_bytes().decode("latin-1") for file in (*files, made.home.parent / "stderr")),
    ):
        assert KEY not in one
        assert address not in one


@pytest.mark.long  # it imports the library of its model
async def test_a_server_without_a_network_finds_its_model_by_the_name_of_loopback(tmp_path: Path) -> None:
    with model_api({"go": [Says("Done.")]}) as model:
        model.url = model.url.replace("127.0.0.1", "localhost")
        made = on_stdio(setup(tmp_path, model, "read-only", "--network", "none"))
        async with connected(made, read_timeout_seconds=120) as client:
            said = text(await client.call_tool("Agent", TASK))
    assert said.startswith("Done.")
    show_no_secret(made, [said], model.url.removeprefix("http://").removesuffix("/v1"))


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
            Says("So far.", [bash("pwd; echo x > mine")]),
            Says(calls=[bash("pwd")], after=gate),
            Says("Done."),
        ],
    }
    with model_api(scripts) as model:
        at = setup(tmp_path, model, "danger-full-access")
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


WITHOUT_NETWORK = [one.TASK for one in (refactoring, database, long_job, understanding)]
JOB_SECONDS = 1
ROOTS = [f"--root={path}" for path in INTERPRETER]


@pytest.mark.long  # other tests of the gate call the same tools
@pytest.mark.parametrize("task", WITHOUT_NETWORK, ids=attrgetter("name"))
def test_a_task_is_done_without_a_rejected_call(task: Task) -> None:
    # Not below /tmp, because commands share no /tmp if a root is there.
    with visible_folder() as folder:
        outcome = done_with_ours(task, folder, JOB_SECONDS, ROOTS)
    assert outcome.rejections == []
    assert outcome.usage.rejected == 0
    assert outcome.usage.calls <= 3
