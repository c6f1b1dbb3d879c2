"""What agents may never do: more than the call that started them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.policy.narrowing import Narrowing
from tests.agents.agents import HANDLE, Call, Says, agents
from tests.policy.test_narrowings import Recorder
from tests.support.calling import held

READ, WRITE, DANGER = Permission

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


def started(folder: Path) -> dict[str, bytes]:
    """The files before any attempt."""
    (folder / "root").mkdir(exist_ok=True)
    (folder / "root" / "a.txt").write_bytes(b"old\n")
    return held(folder / "root")


async def test_the_attempts_change_files_where_they_may(tmp_path: Path) -> None:
    before = started(tmp_path)
    async with agents(tmp_path, {"write": [Says(calls=WRITES), Says("done")]}) as at:
        assert (await at.agent("write")).error is None
    assert held(tmp_path / "root") == {**before, "a.txt": b"changed\n", "b.txt": b"new"}


@pytest.mark.parametrize("kind", ["Explore", "Plan"])
async def test_a_reading_agent_of_a_writing_caller_changes_nothing(tmp_path: Path, kind: str) -> None:
    before = started(tmp_path)
    scripts = {
        "explore": [Says(calls=[*WRITES, STARTS]), Says("I could not.")],
        "write": [Says(calls=WRITES), Says("done")],
    }
    async with agents(tmp_path, scripts) as at:
        result = await at.agent("explore", subagent_type=kind, mode="danger-full-access")
        assert result.text.startswith("I could not.")
        assert not at.model.of("write")
        replies = at.model.requests[-1].results
        assert len(replies) == len(WRITES) + 1
        for reply in replies:
            assert f"the agent type {kind} allows" in reply
        assert not {"write_file", "bash", "Agent", "REPL"} & {*at.model.requests[0].tools}
        assert {"read_file", "grep_search"} <= {*at.model.requests[0].tools}
    assert held(tmp_path / "root") == before


async def test_a_mode_lowers_an_agent_and_those_that_it_starts(tmp_path: Path) -> None:
    before = started(tmp_path)
    scripts = {
        "low": [Says(calls=[*WRITES, STARTS]), Says("I could not.")],
        "write": [Says(calls=WRITES), Says("neither")],
    }
    async with agents(tmp_path, scripts) as at:
        result = await at.agent("low", mode="plan")
        assert result.text.startswith("I could not.")
        for prompt in ("low", "write"):
            replies = at.model.of(prompt)[-1].results
            assert "the mode with which this agent was started" in replies[0]
        assert at.model.of("low")[-1].results[-1].startswith("neither")
    assert held(tmp_path / "root") == before


@pytest.mark.parametrize("mode", ["danger-full-access", "bypassPermissions", "acceptEdits"])
async def test_nothing_raises_an_agent_above_a_reading_server(tmp_path: Path, mode: str) -> None:
    before = started(tmp_path)
    folder = tmp_path / "root" / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "greedy.md").write_text(
        "---\nname: greedy\ntools: '*'\npermission: danger-full-access\nmode: bypassPermissions\n---\nWrite.",
        encoding="utf-8",
    )
    before = held(tmp_path / "root")
    scripts = {"write": [Says(calls=[*WRITES, STARTS]), Says("I could not.")]}
    async with agents(tmp_path, scripts, READ) as at:
        for kind in ("greedy", "general-purpose", "Verification"):
            result = await at.agent("write", subagent_type=kind, mode=mode)
            assert result.text.startswith("I could not.")
    assert held(tmp_path / "root") == before


async def test_a_file_gives_an_agent_only_the_tools_that_it_names(tmp_path: Path) -> None:
    started(tmp_path)
    folder = tmp_path / "root" / ".agents" / "agents"
    folder.mkdir(parents=True)
    (folder / "shell.md").write_text(
        "---\nname: shell\ndescription: runs echo\ntools: Read, Bash(echo *), NoSuchTool\n---\nSay hello.",
        encoding="utf-8",
    )
    before = held(tmp_path / "root")
    run = Call(tool="bash", arguments={"command": "echo hello"})
    scripts = {
        "go": [Says(calls=[run, *WRITES, STARTS]), Says("Hello.")],
        "write": [Says(calls=WRITES), Says("done")],
    }
    async with agents(tmp_path, scripts) as at:
        result = await at.agent("go", subagent_type="shell")
        assert result.text.startswith("Hello.")
        first, last = at.model.requests
        assert first.system.startswith("Say hello.")
        assert {*first.tools} == {"read_file", "bash"}
        assert last.results[0].startswith("hello")
        for reply in last.results[1:]:
            assert "the agent type shell allows only Read, Bash(echo *)" in reply
    assert held(tmp_path / "root") == before


async def test_a_resumed_agent_has_no_more_rights_than_who_resumes_it(tmp_path: Path) -> None:
    before = started(tmp_path)
    script = [Says("Ready."), Says(calls=WRITES), Says("I could not.")]
    async with agents(tmp_path, {"wait": script}) as at:
        first = await at.agent("wait")
        plan = Narrowing(source="plan mode", ceiling=READ)
        at.server.narrowings.put(LOCAL, "plan", plan)
        again = await at.agent("now write", resume=HANDLE.findall(first.text)[0])
        assert again.text.startswith("I could not.")
        assert "plan mode" in at.model.requests[-1].results[0]
    assert held(tmp_path / "root") == before


async def test_rules_hold_for_agents_and_for_their_types(tmp_path: Path) -> None:
    started(tmp_path)
    script = [Says(calls=[Call(tool="read_file", arguments={"path": "a.txt"})]), Says("Done.")]
    rules: dict[str, Any] = {"deny": ("Agent(Plan)", "read_file(a.txt)")}
    async with agents(tmp_path, {"read": script}, **rules) as at:
        assert (await at.agent("read", subagent_type="planner")).error == "denied"
        assert (await at.agent("read")).text.startswith("Done.")
        assert "denied here by the rule" in at.model.requests[-1].results[0]


async def test_agents_start_each_other_to_a_depth_of_five(tmp_path: Path) -> None:
    def next_one(number: int) -> Call:
        return Call(tool="Agent", arguments={"description": "x", "prompt": f"depth {number}"})

    scripts = {
        f"depth {number}": [Says(calls=[next_one(number + 1)]), Says(f"depth {number} is done")]
        for number in range(1, 7)
    }
    async with agents(tmp_path, scripts) as at:
        result = await at.agent("depth 1")
        assert result.text.startswith("depth 1 is done")
        assert not at.model.of("depth 6")
        [reply] = at.model.of("depth 5")[-1].results
        assert "to a depth of 5" in reply


async def test_each_call_of_an_agent_is_recorded_with_the_call_that_started_it(tmp_path: Path) -> None:
    kept = Recorder()
    script = [Says(calls=[Call(tool="ls"), Call(tool="grep_search")]), Says("Done.")]
    async with agents(tmp_path, {"go": script}) as at:
        at.server = replace(at.server, recorder=kept)
        await at.agent("go")
    # A call is recorded when it ends, so that of Agent comes last.
    [*own, outer] = kept.calls
    assert outer.tool == "Agent"
    assert sorted((one.name, one.parent_id) for one in own) == [("grep_search", outer.id), ("ls", outer.id)]
    assert all(one.session.startswith("agent agent_") for one in own)
