"""What agents may never do: more than the call that started them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.policy.rules import Narrowing
from tests.agents.agents import HANDLE, Agents, Call, Says, agents
from tests.agents.conftest import Started
from tests.support.calling import held
from tests.support.workbench import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

WRITES = (
    Call(tool="write_file", arguments={"path": "a.txt", "content": "changed"}),
    Call(tool="edit_file", arguments={"path": "a.txt", "old_string": "old", "new_string": "changed"}),
    Call(tool="bash", arguments={"command": "echo changed > a.txt; echo new > b.txt"}),
    Call(tool="REPL", arguments={"language": "python", "code": "open('b.txt', 'w').write('new')"}),
    Call(tool="CallTool", arguments={"name": "write_file", "arguments": {"path": "b.txt", "content": "new"}}),
)
"""Attempts to write; all change files where the rights allow it."""

STARTS = Call(
    tool="Agent", arguments={"description": "x", "prompt": "write", "subagent_type": "general-purpose"}
)


def before(root: Path) -> dict[str, bytes]:
    """The files before any attempt."""
    (root / "a.txt").write_bytes(b"old\n")
    return held(root)


async def test_a_reading_agent_of_a_writing_caller_changes_nothing(at: Agents) -> None:
    scripts = {
        "explore": [Says(calls=[*WRITES, STARTS]), Says("I could not.")],
        "write": [Says(calls=WRITES), Says("done")],
    }
    for kind in ("Explore", "Plan"):
        at.plays(scripts)
        files = before(at.root)
        result = await at.agent("explore", subagent_type=kind, mode="danger-full-access")
        assert result.text.startswith("I could not.")
        assert not at.model.of("write")
        replies = at.model.requests[-1].results
        assert len(replies) == len(WRITES) + 1
        for reply in replies:
            assert f"the agent type {kind} allows" in reply
        assert not {"write_file", "bash", "Agent", "REPL"} & {*at.model.requests[0].tools}
        assert {"read_file", "grep_search"} <= {*at.model.requests[0].tools}
        assert held(at.root) == files
    # Without the type they change files.
    assert (await at.agent("write")).error is None
    assert held(at.root) == {**files, "a.txt": b"changed\n", "b.txt": b"new"}


async def test_a_mode_lowers_an_agent_and_those_that_it_starts(at: Agents) -> None:
    files = before(at.root)
    at.model.scripts = {
        "low": [Says(calls=[*WRITES, STARTS]), Says("I could not.")],
        "write": [Says(calls=WRITES), Says("neither")],
    }
    result = await at.agent("low", mode="plan")
    assert result.text.startswith("I could not.")
    for prompt in ("low", "write"):
        replies = at.model.of(prompt)[-1].results
        assert "the mode with which this agent was started" in replies[0]
    assert at.model.of("low")[-1].results[-1].startswith("neither")
    assert held(at.root) == files


async def test_a_verification_agent_reaches_the_servers_of_its_caller_if_it_has_the_same_rights(
    at: Agents,
) -> None:
    port = 8_767
    ask = f'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {port})); print("reached")\''
    serve = f"python3 -m http.server {port} --bind 127.0.0.1"
    started = await at.call("bash", command=serve, run_in_background=True)
    await at.call("bash", command=f"until {ask} 2>/dev/null; do sleep 0.05; done")
    for kind, mode, reaches in (
        ("Verification", "danger-full-access", True),
        ("Verification", "plan", False),
        ("general-purpose", "danger-full-access", False),
    ):
        at.model.scripts = {
            "ask": [Says(calls=[Call(tool="bash", arguments={"command": ask})]), Says("Done.")]
        }
        await at.agent("ask", subagent_type=kind, mode=mode)
        assert at.model.of("ask")[-1].results[0].startswith("reached") == reaches, (kind, mode)
    await at.call("TaskStop", task_id=re.findall(r"bg_\w+", started.text)[0])


async def test_nothing_raises_an_agent_above_a_reading_server(started: Started) -> None:
    at = await started(Permission.READ_ONLY)
    folder = at.root / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "greedy.md").write_text(
        "---\nname: greedy\ntools: '*'\npermission: danger-full-access\nmode: bypassPermissions\n---\nWrite.",
        encoding="utf-8",
    )
    files = before(at.root)
    at.model.scripts = {"write": [Says(calls=[*WRITES, STARTS]), Says("I could not.")]}
    for mode, kind in (
        ("danger-full-access", "greedy"),
        ("bypassPermissions", "general-purpose"),
        ("acceptEdits", "Verification"),
    ):
        result = await at.agent("write", subagent_type=kind, mode=mode)
        assert result.text.startswith("I could not.")
        assert held(at.root) == files, (mode, kind)


async def test_a_file_gives_an_agent_only_the_tools_that_it_names(at: Agents) -> None:
    folder = at.root / ".agents" / "agents"
    folder.mkdir(parents=True)
    (folder / "shell.md").write_text(
        "---\nname: shell\ndescription: runs echo\ntools: Read, Bash(echo *), NoSuchTool\n---\nSay hello.",
        encoding="utf-8",
    )
    files = before(at.root)
    run = Call(tool="bash", arguments={"command": "echo hello"})
    at.model.scripts = {
        "go": [Says(calls=[run, *WRITES, STARTS]), Says("Hello.")],
        "write": [Says(calls=WRITES), Says("done")],
    }
    result = await at.agent("go", subagent_type="shell")
    assert result.text.startswith("Hello.")
    first, last = at.model.requests
    assert first.system.startswith("Say hello.")
    assert {*first.tools} == {"read_file", "bash"}
    assert last.results[0].startswith("hello")
    for reply in last.results[1:]:
        assert "the agent type shell allows only Read, Bash(echo *)" in reply
    assert held(at.root) == files


async def test_a_resumed_agent_has_no_more_rights_than_who_resumes_it(at: Agents) -> None:
    files = before(at.root)
    at.model.scripts = {"wait": [Says("Ready."), Says(calls=WRITES), Says("I could not.")]}
    owner = Person(owner="connection 1")
    first = await at.agent("wait", owner)
    plan = Narrowing(source="plan mode", ceiling=Permission.READ_ONLY)
    at.server.narrowings.put(owner.owner, "plan", plan)
    again = await at.agent("now write", owner, resume=HANDLE.findall(first.text)[0])
    assert again.text.startswith("I could not.")
    assert "plan mode" in at.model.requests[-1].results[0]
    assert held(at.root) == files


async def test_rules_hold_for_agents_and_for_their_types(tmp_path: Path) -> None:
    script = [Says(calls=[Call(tool="read_file", arguments={"path": "a.txt"})]), Says("Done.")]
    rules: dict[str, Any] = {"deny": ("Agent(Plan)", "read_file(a.txt)", "read_file(AGENTS.md)")}
    async with agents(tmp_path, {"read": script}, **rules) as at:
        before(at.root)
        (at.root / "AGENTS.md").write_text("Use tabs.", encoding="utf-8")
        assert (await at.agent("read", subagent_type="planner")).error == "denied"
        assert (await at.agent("read")).text.startswith("Done.")
        assert "denied here by the rule" in at.model.requests[-1].results[0]
        assert "Use tabs." not in at.model.requests[-1].system


@pytest.mark.requirement("CL-45")
async def test_agents_start_each_other_to_a_depth_of_five(at: Agents) -> None:
    def next_one(number: int) -> Call:
        return Call(tool="Agent", arguments={"description": "x", "prompt": f"depth {number}"})

    at.model.scripts = {
        f"depth {number}": [Says(calls=[next_one(number + 1)]), Says(f"depth {number} is done")]
        for number in range(1, 7)
    }
    result = await at.agent("depth 1")
    assert result.text.startswith("depth 1 is done")
    assert not at.model.of("depth 6")
    [reply] = at.model.of("depth 5")[-1].results
    assert "to a depth of 5" in reply


async def test_each_call_of_an_agent_is_recorded_with_the_call_that_started_it(at: Agents) -> None:
    kept: list[CallRecord] = []
    at.model.scripts = {"go": [Says(calls=[Call(tool="ls"), Call(tool="grep_search")]), Says("Done.")]}
    await replace(at, server=replace(at.server, observers=(kept.append,))).agent("go")
    # A call is recorded when it ends, so that of Agent comes last.
    [*own, outer] = kept
    assert outer.tool == "Agent"
    assert sorted((one.name, one.parent_id) for one in own) == [("grep_search", outer.id), ("ls", outer.id)]
    assert all(one.session.startswith("agent agent_") for one in own)
