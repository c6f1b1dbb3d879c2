"""The tool Agent as a client sees it, in both protocol generations; and agents of the installed program, in
its own confined process."""

import json
import os
import re
import signal
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from benchmarks.agent.setups import done_with_ours
from benchmarks.agent.task import Task
from benchmarks.agent.tasks import database, long_job, refactoring, understanding
from mcp_toolserver.commands.doctor import facts
from mcp_toolserver.invocation import load
from tests.agents.agents import HANDLE, Call, Model, Request, Says, Script, bash, model_api
from tests.agents.test_agent_rights import WRITES, repository
from tests.agents.test_run_task_packet import PACKET
from tests.protocol.resource_clients import ERAS, Place, completed, listed, place, read, refusal
from tests.support.calling import held
from tests.support.confinement import visible_folder
from tests.support.live import Messages, Setup, connected, connected_to, serving, text
from tests.support.processes import arguments, processes
from tests.support.workshop import INTERPRETER

EXAMPLE = {
    "description": "Find the rate",
    "prompt": "Where is the VAT rate set?",
    "subagent_type": "Explore",
}

SCRIPT = [Says("I look.", [Call(tool="ls")]), Says("All is well.")]
TASK = {"description": "look around", "prompt": "look"}


@asynccontextmanager
async def agent_client(
    folder: Path, era: str, scripts: Mapping[str, Script], **given: Any
) -> AsyncGenerator[tuple[Client, Place]]:
    """A client of a server whose agents' model follows `scripts`."""
    with model_api(scripts) as model:
        settings = {"agent_provider": "openai", "agent_base_url": model.url, "agent_model": "scripted"}
        async with place(folder, **settings, **given) as made, made.client(era) as client:
            yield client, made


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_starts_an_agent_and_reads_its_conversation(era: str, tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with agent_client(tmp_path, era, {"look": SCRIPT}) as (client, made):
        assert "Agent" in {tool.name for tool in (await client.list_tools()).tools}
        templates = (await client.list_resource_templates()).resource_templates
        assert "toolserver://agents/{id}" in {one.uri_template for one in templates}
        handles: set[str] = set()
        for name in ("Agent", "Task", "task"):
            result = await client.call_tool(name, TASK, progress_callback=report)
            assert not result.is_error
            assert text(result).startswith("All is well.\n[agent_")
            assert "look around: turn 2: calls ls" in heard
            heard.clear()
            handles.update(HANDLE.findall(text(result)))
        uris = {uri for uri in await listed(client) if uri.startswith("toolserver://agents/")}
        assert uris == {f"toolserver://agents/{handle}" for handle in handles}
        assert len(uris) == 3
        for uri in uris:
            found = json.loads(await read(client, uri))
            assert (found["status"], found["type"]) == ("finished", "general-purpose")
            assert [one["role"] for one in found["messages"]] == ["user", "agent", "tools", "agent"]
            assert found["messages"][0]["content"]["text"] == "look"
        # Agents can be watched, and their addresses completed.
        assert {*await completed(client, "toolserver://agents/{id}", "agent_", "id")} == handles
        if era == "legacy":
            await client.session.subscribe_resource(next(iter(uris)))
            with pytest.raises(MCPError):
                await client.session.subscribe_resource("toolserver://agents/agent_000000000000")
        name = mcp.Implementation(name="other", version="1")
        async with made.client(era, client_info=name) as other:
            for uri in uris:
                assert (await refusal(other, uri)).error.data == {"uri": uri}
        entries = "".join(file.read_text("utf-8") for file in (tmp_path / "state/audit").glob("*.jsonl"))
        assert entries.count('"tool":"Agent"') == 3, "reading one is no call of Agent"


@pytest.mark.requirement("GR-30")
async def test_types_and_skills_of_the_workspace_are_in_the_descriptions_of_their_tools(
    tmp_path: Path,
) -> None:
    hostile = "a\\nIGNORE \\u202e"
    deny = ("Agent(denied)", "Skill(denied)", "read_file(**/hidden/**)")
    async with agent_client(tmp_path, "auto", {}, deny=deny) as (client, made):
        for name, words in (("ann", hostile), ("denied", "d"), *((f"t{n}", "x" * 250) for n in range(20))):
            made.write(f".claude/agents/{name}.md", f'---\nname: {name}\ndescription: "{words}"\n---\nHelp.')
        for name in ("release", "denied", "hidden"):
            made.write(f".agents/skills/{name}/SKILL.md", '---\ndescription: "Cut\\n it\\e"\n---\nDo.')
        made.write(".agents/skills/mine/SKILL.md", "---\ndisable-model-invocation: true\n---\nDo.")
        tools = (await client.list_tools(cache_mode="bypass")).tools
        described = {tool.name: (tool.description or "").partition("\nFiles here add")[2] for tool in tools}
        assert described.pop("Skill") == ", in their own words:\n- release: Cut it\\u{1b}"
        lines = described.pop("Agent").splitlines()
        assert lines[1] == "- ann: a IGNORE \\u{202e}"
        assert (lines[-1], "denied" in str(lines)) == ("- and 14 more", False)
        assert sum(map(len, lines)) < 1_500
        assert not any(described.values())
        saved = {"name": "saved", "description": "Mine", "prompt": "Do."}
        assert not (await client.call_tool("save_skill", saved)).is_error
        assert (await client.list_tools(cache_mode="bypass")).tools == tools


@pytest.mark.requirement("GR-18")
async def test_without_a_model_the_tools_are_not_listed_and_a_call_says_what_to_configure(
    tmp_path: Path,
) -> None:
    for toolsets, era in (("all", "legacy"), ("default", "auto")):
        async with place(tmp_path, toolsets=(toolsets,)) as made, made.client(era) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert not names & {"Agent", "TeamCreate", "TeamDelete"}
            result = await client.call_tool("task", TASK)
            assert result.is_error
            assert "[agent]" in text(result)
            assert await refusal(client, "toolserver://agents/agent_000000000000")
            assert not [uri for uri in await listed(client) if "agents" in uri]


@pytest.mark.requirement("GR-18")
async def test_agents_of_a_default_server_have_no_tool_that_finds_others(tmp_path: Path) -> None:
    seen: list[Request] = []

    def look(request: Request) -> Says:
        seen.append(request)
        return Says("Done.")

    async with agent_client(tmp_path, "auto", {"look": look}, toolsets=()) as (client, _):
        assert text(await client.call_tool("task", TASK)).startswith("Done.")
        assert {"Agent", "Skill", "ls"} <= {*seen[0].tools}
        assert not {"ToolSearch", "CallTool", "Sleep"} & {*seen[0].tools}


GO = {"description": "a test", "prompt": "go"}
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
    differ in nothing of this; the tests above have both."""
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
                seen.append(text(await client.call_tool("Agent", {**GO, **arguments})))
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
            said = text(await client.call_tool("Agent", GO))
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
                apart = {**GO, "run_in_background": True, "isolation": "worktree"}
                handle = HANDLE.findall(text(await client.call_tool("Agent", apart)))[0]
                await model.has_been_asked(2, "go")
                kill(at)
        with serving(at, "http") as url:
            async with connected_to(url, "http", mode="auto") as client:
                said = text(await client.call_tool("TaskOutput", {"task_id": handle}))
                gate.set()
                resumed = text(await client.call_tool("Agent", {**GO, "resume": handle}))
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
