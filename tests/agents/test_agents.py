"""Agents: what they do, and when they end."""

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.capabilities.processes import JobQuery
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.agents import loop
from mcp_toolserver.runtime.agents.agents import CallAgents
from tests.agents.agents import HANDLE, PATIENCE, Agents, Call, Says, agents
from tests.support.processes import Daemons, until
from tests.support.workbench import Person
from tests.support.workshop import granted

ENDLESS = [Says(f"So far {number}.", [Call(tool="ls")]) for number in range(1, 100)]


def handle(text: str) -> str:
    """The id of the agent in an answer."""
    return HANDLE.findall(text)[-1]


def last_line(text: str) -> str:
    """The last line of an answer, with the same id each time."""
    return HANDLE.sub("agent_x", text.rpartition("\n")[2])


async def test_an_agent_returns_its_last_answer_and_what_it_used(tmp_path: Path) -> None:
    script = [
        Says("I look.", [Call(tool="ls"), Call(tool="read_file", arguments={"path": "a.txt"})]),
        Says("The file says hello."),
    ]
    async with agents(tmp_path, {"find it": script}) as at:
        (tmp_path / "root" / "a.txt").write_text("hello", encoding="utf-8")
        person = Person()
        result = await at.agent("find it", person)
        assert result.error is None
        assert result.text.partition("\n")[0] == "The file says hello."
        assert last_line(result.text) == "[agent_x finished; 2 turns, 30 tokens]"
        assert person.heard == [
            "a test: turn 1: waits for its model",
            "a test: turn 2: calls ls, read_file",
            "a test: turn 2: waits for its model",
        ]
        first, second = at.model.requests
        assert str(tmp_path / "root") in first.system
        assert {"read_file", "write_file", "bash", "Agent"} <= {*first.tools}
        assert "hello" in second.results[1]


async def test_mistakes_of_the_model_are_told_to_it(tmp_path: Path) -> None:
    many = [Call(tool="ls")] * 40
    script = [
        Says(calls=[Call(tool="fly"), Call(tool="ls", arguments="{"), Call(tool="ls", arguments='"."')]),
        Says(calls=[Call(tool="read_file", arguments={"path": "none"}), Call(tool="ls", arguments={"x": 1})]),
        Says(calls=many),
        Says("done"),
    ]
    async with agents(tmp_path, {"try": script}) as at:
        result = await at.agent("try")
        assert result.error is None
        replies = at.model.requests[-1].results
        assert "there is no tool of this name" in replies[0]
        assert "not a JSON object" in replies[1]
        assert "not a JSON object" in replies[2]
        assert "none" in replies[3]
        assert "x" in replies[4]
        assert [number for number, reply in enumerate(replies[5:]) if "at most 32 calls" in reply] == [
            *range(32, 40)
        ]


async def test_a_long_result_is_shortened_for_the_model(tmp_path: Path) -> None:
    script = [Says(calls=[Call(tool="read_file", arguments={"path": "a"})]), Says("done")]
    async with agents(tmp_path, {"read": script}) as at:
        (tmp_path / "root" / "a").write_text("ä" * 29_000, encoding="utf-8")
        await at.agent("read")
        [reply] = at.model.requests[-1].results
        assert len(reply.encode()) < 41_000
        assert "characters more are not shown" in reply


async def test_a_picture_is_named_because_agents_see_text_only(tmp_path: Path) -> None:
    script = [Says(calls=[Call(tool="view_image", arguments={"path": "a.png"})]), Says("done")]
    async with agents(tmp_path, {"look": script}) as at:
        (tmp_path / "root" / "a.png").write_bytes(PIXEL)
        await at.agent("look")
        assert "1 images are not shown to agents" in at.model.requests[-1].results[0]


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005fe02"
    "fe0def46b80000000049454e44ae426082"
)


async def test_reading_calls_run_together_and_others_in_their_order(tmp_path: Path) -> None:
    # The first command waits for a file that the second call would write if it did not wait for the first.
    script = [
        Says(
            calls=[
                Call(tool="bash", arguments={"command": "sleep 0.2; ls; echo one > a"}),
                Call(tool="read_file", arguments={"path": "a"}),
                Call(tool="grep_search", arguments={"pattern": "one"}),
                Call(tool="write_file", arguments={"path": "b", "content": "two"}),
            ]
        ),
        Says("done"),
    ]
    async with agents(tmp_path, {"go": script}) as at:
        person = Person()
        result = await at.agent("go", person)
        assert result.error is None
        steps = [said.partition("calls ")[2] for said in person.heard if "calls " in said]
        assert steps == ["bash", "read_file, grep_search", "write_file"]
        replies = at.model.requests[-1].results
        assert "b" not in replies[0].split()
        assert "one" in replies[1]


@pytest.mark.parametrize(
    ("settings", "arguments", "why", "turns"),
    [
        pytest.param({"agent_turns": 3}, {}, "it reached the limit of 3 turns", 3, id="turns"),
        pytest.param({}, {"max_turns": 2}, "it reached the limit of 2 turns", 2, id="turns of the call"),
        pytest.param(
            {"agent_turns": 2}, {"max_turns": 9}, "it reached the limit of 2 turns", 2, id="not raised"
        ),
        pytest.param({"agent_tokens": 1000}, {}, "it reached the limit of 1,000 tokens", 2, id="tokens"),
        pytest.param(
            {"agent_cost": 0.5, "agent_input_price": 1000.0, "agent_output_price": 0.0},
            {},
            "it reached the limit of $0.5",
            2,
            id="cost",
        ),
        pytest.param(
            {"agent_cost": 0.5}, {}, "its cost is unknown, and the limit is $0.5", 1, id="unknown cost"
        ),
    ],
)
async def test_a_limit_ends_an_agent_with_its_partial_answer(
    tmp_path: Path, settings: Mapping[str, Any], arguments: Mapping[str, Any], why: str, turns: int
) -> None:
    script = [Says(one.text, one.calls, tokens=(400, 100)) for one in ENDLESS]
    async with agents(tmp_path, {"go": script}, **settings) as at:
        result = await at.agent("go", **arguments)
        assert result.error is None
        assert result.text.startswith(f"So far {turns}.\n[to go on, call Agent with resume: agent_")
        assert f"ended before it was done: {why}; {turns} turn" in result.text
        assert len(at.model.requests) == turns


async def test_the_limit_of_time_ends_an_agent_with_its_partial_answer(tmp_path: Path) -> None:
    never = threading.Event()
    script = [Says("So far.", [Call(tool="ls")]), Says("Too late.", after=never)]
    try:
        async with agents(tmp_path, {"go": script}, agent_seconds=1.0) as at:
            result = await at.agent("go")
            assert result.error is None
            assert result.text.startswith("So far.\n")
            assert "it reached the limit of 1 s" in result.text
    finally:
        never.set()


async def test_a_conversation_that_is_full_ends_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CONVERSATION_BYTES", 1000)
    script = [Says("So far.", [Call(tool="read_file", arguments={"path": "a"})]), Says("Not asked any more.")]
    async with agents(tmp_path, {"go": script}) as at:
        (tmp_path / "root" / "a").write_text("x" * 2000, encoding="utf-8")
        result = await at.agent("go")
        assert result.text.startswith("So far.\n")
        assert "its conversation reached the limit of 1,000 bytes; 1 turn" in result.text


async def test_what_an_agent_starts_counts_for_its_own_limits(tmp_path: Path) -> None:
    inner = Call(tool="Agent", arguments={"description": "b", "prompt": "inner"})
    scripts = {
        "outer": [Says("Started.", [inner]), Says("Not asked any more.")],
        "inner": [Says("inner done", tokens=(900, 100))],
    }
    async with agents(tmp_path, scripts, agent_tokens=1000) as at:
        result = await at.agent("outer")
        assert result.text.startswith("Started.\n")
        assert "the limit of 1,000 tokens; 1 turn, 1,015 tokens" in result.text


async def test_a_resumed_agent_remembers(tmp_path: Path) -> None:
    script = [Says("I am Ann.", [Call(tool="ls")]), Says("Done."), Says("I am still Ann.")]
    async with agents(tmp_path, {"who": script}) as at:
        first = await at.agent("who", subagent_type="explorer")
        again = await at.agent("and now?", resume=handle(first.text))
        assert again.text.startswith("I am still Ann.")
        assert last_line(again.text) == "[agent_x finished; 3 turns, 45 tokens]"
        assert handle(again.text) == handle(first.text)
        asked = at.model.requests[-1]
        assert asked.said == ("who", "I am Ann.", "Done.", "and now?")
        assert len(asked.results) == 1
        assert "write_file" not in asked.tools


async def test_the_next_server_resumes_an_agent_and_says_what_was_lost(tmp_path: Path) -> None:
    never = threading.Event()
    scripts = {
        "who": [Says("I am Ann."), Says("Still Ann.")],
        "wait": [Says("So far.", [Call(tool="ls")]), Says("Too late.", after=never)],
    }
    try:
        async with agents(tmp_path, scripts) as at:
            first = handle((await at.agent("who")).text)
            lost = handle((await at.agent("wait", run_in_background=True)).text)
            await at.model.has_been_asked(2, "wait")
        async with agents(tmp_path, scripts) as at:
            assert (await at.agent("and now?", resume=first)).text.startswith("Still Ann.")
            state = await jobs_of(at).output(JobQuery(handle=lost, limit=1000))
            assert state.text.startswith("So far.\n[to go on, call Agent with resume: agent_")
            assert "ended with the server that ran it; 1 turn" in state.text
    finally:
        never.set()


async def test_an_agent_that_was_stopped_in_a_call_can_be_resumed(tmp_path: Path) -> None:
    script = [Says("Wait.", [Call(tool="bash", arguments={"command": "sleep 100"})]), Says("I was stopped.")]
    async with agents(tmp_path, {"go": script}, agent_seconds=2.0) as at:
        first = await at.agent("go")
        assert "the limit of 2 s" in first.text
        again = await at.agent("go on", resume=handle(first.text))
        assert again.text.startswith("I was stopped.")
        assert "stopped before this call ended" in at.model.requests[-1].results[0]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        pytest.param({"resume": "agent_000000000000"}, "not_found", id="unknown"),
        pytest.param({"subagent_type": "Plan"}, "invalid_input", id="another type"),
        pytest.param({"name": "other"}, "invalid_input", id="another name"),
    ],
)
async def test_what_cannot_be_resumed_is_refused(
    tmp_path: Path, arguments: Mapping[str, Any], kind: str
) -> None:
    async with agents(tmp_path, {"go": [Says("Done.")]}) as at:
        first = await at.agent("go")
        refused = await at.agent("more", **{"resume": handle(first.text), **arguments})
        assert refused.error == kind


async def test_an_agent_is_out_of_reach_for_other_owners(tmp_path: Path) -> None:
    async with agents(tmp_path, {"go": [Says("Done.")]}) as at:
        first = await at.agent("go", Person(owner="connection 1"))
        refused = await at.agent("more", Person(owner="connection 2"), resume=handle(first.text))
        assert refused.error == "not_found"


async def test_a_model_that_does_not_answer_is_an_error_and_later_a_partial_answer(tmp_path: Path) -> None:
    scripts = {
        "fail": [Says(status=400)],
        "later": [Says("A start.", [Call(tool="ls")]), Says(status=400)],
    }
    async with agents(tmp_path, scripts) as at:
        assert (await at.agent("fail")).error == "unavailable"
        later = await at.agent("later")
        assert later.error is None
        assert later.text.startswith("A start.\n[to go on")
        assert "failed: " in later.text
        assert at.model.url not in later.text


async def test_names_and_the_number_of_running_agents_are_limited(tmp_path: Path) -> None:
    gate = threading.Event()
    scripts: Mapping[str, Sequence[Says]] = {"wait": [Says("Done.", after=gate)]}
    try:
        async with agents(tmp_path, scripts, agent_running=2) as at:
            one = await at.agent("wait", name="one", run_in_background=True)
            assert one.text.startswith("The agent works in the background.")
            same = await at.agent("wait", name="one", run_in_background=True)
            assert same.error == "conflict"
            resumed = await at.agent("wait", resume=handle(one.text))
            assert resumed.error == "conflict"
            await at.agent("wait", run_in_background=True)
            assert (await at.agent("wait")).error == "unavailable"
            gate.set()
    finally:
        gate.set()


async def test_an_unknown_type_is_an_error_that_lists_all(tmp_path: Path) -> None:
    async with agents(tmp_path, {}) as at:
        refused = await at.agent("go", subagent_type="Wizard")
        assert refused.error == "invalid_input"
        for name in ("Wizard", "general-purpose", "Explore", "Plan", "Verification"):
            assert name in refused.text


async def test_a_cancelled_call_ends_its_agent_and_all_it_started(tmp_path: Path) -> None:
    daemons = Daemons()
    command = Call(
        tool="bash", arguments={"command": f"{daemons.script}sleep 100", "run_in_background": True}
    )
    wait = Call(tool="bash", arguments={"command": "sleep 100"})
    async with agents(tmp_path, {"go": [Says(calls=[command, wait])]}, Permission.DANGER_FULL_ACCESS) as at:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.agent, "go")
            await until(lambda: len(daemons.alive()) == 4)
            tasks.cancel_scope.cancel()
        assert daemons.alive() == []


async def test_the_end_of_an_agent_ends_what_it_left_behind(tmp_path: Path) -> None:
    daemons = Daemons()
    command = Call(
        tool="bash", arguments={"command": f"{daemons.script}sleep 100", "run_in_background": True}
    )
    read = Call(tool="bash", arguments={"command": "sleep 0.5"})
    script = [Says(calls=[command]), Says(calls=[read]), Says("Done.")]
    async with agents(tmp_path, {"go": script}, Permission.DANGER_FULL_ACCESS) as at:
        result = await at.agent("go")
        assert result.text.startswith("Done.")
        assert daemons.alive() == []


async def test_a_call_that_the_client_would_not_wait_for_goes_on_in_the_background(tmp_path: Path) -> None:
    gate = threading.Event()
    try:
        async with agents(tmp_path, {"go": [Says("Done.", after=gate)]}, foreground_seconds=0.2) as at:
            result = await at.agent("go")
            assert result.text.startswith("The agent works in the background. TaskOutput waits")
            gate.set()
            jobs = jobs_of(at)
            query = JobQuery(handle=handle(result.text), limit=1000, wait=PATIENCE)
            with anyio.fail_after(PATIENCE):
                # A single wait is no longer than the client would wait.
                while (state := await jobs.output(query)).running:
                    assert state.text == ""
            assert state.text.startswith("Done.\n")
    finally:
        gate.set()


def jobs_of(at: Agents) -> CallAgents:
    """The background jobs of the one client."""
    found = granted(at.server, Capability.AGENTS).agents
    assert isinstance(found, CallAgents)
    return found


async def test_a_background_agent_is_followed_and_its_result_is_read(tmp_path: Path) -> None:
    gate = threading.Event()
    script = [Says("I start.", [Call(tool="ls")]), Says("The ätherial result.", after=gate)]
    try:
        async with agents(tmp_path, {"go": script}) as at:
            started = await at.agent("go", run_in_background=True)
            name, jobs = handle(started.text), jobs_of(at)
            await at.model.has_been_asked(2, "go")
            running = await jobs.output(JobQuery(handle=name, limit=1000))
            assert (running.running, running.text, running.next_offset) == (True, "", 0)
            assert running.notes == ("it said last: I start.",)
            assert re.fullmatch(
                r"running for \d+\.\d s: waits for its model; 1 turn, 15 tokens", running.status
            )
            gate.set()
            state = await jobs.output(JobQuery(handle=name, limit=8, wait=PATIENCE))
            assert (state.running, state.text, state.next_offset) == (False, "The ätheri"[:7], 8)
            rest = await jobs.output(JobQuery(handle=name, limit=1000, offset=8))
            assert (state.text + rest.text).startswith("The ätherial result.\n[agent_")
            assert rest.next_offset == rest.total
            with pytest.raises(NotFound):
                await jobs.output(JobQuery(handle="agent_000000000000", limit=1))
    finally:
        gate.set()


async def test_the_next_step_of_an_agent_can_be_waited_for(tmp_path: Path) -> None:
    gates = [threading.Event(), threading.Event()]
    script = [Says("I start.", [Call(tool="ls")], after=gates[0]), Says("Done.", after=gates[1])]
    try:
        async with agents(tmp_path, {"go": script}) as at:
            name, jobs = handle((await at.agent("go", run_in_background=True)).text), jobs_of(at)
            steps: list[str] = []

            async def follow() -> None:
                while (state := await jobs.output(next_step(name))).running:
                    steps.append(state.status)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                gates[0].set()
                await at.model.has_been_asked(2, "go")
                gates[1].set()
            assert any(": waits for its model; 1 turn" in step for step in steps)
    finally:
        for gate in gates:
            gate.set()


def next_step(name: str) -> JobQuery:
    """Asks for the state after the next step."""
    return JobQuery(handle=name, limit=10, wait=PATIENCE, until="output")


async def test_stopping_an_agent_ends_everything_it_started(tmp_path: Path) -> None:
    daemons, inner = Daemons(), Daemons()
    never = threading.Event()
    background = {"run_in_background": True}
    script = [
        Says(
            "I start.",
            [
                Call(tool="bash", arguments={"command": f"{daemons.script}sleep 100", **background}),
                Call(
                    tool="REPL",
                    arguments={
                        "language": "python",
                        "session": "new",
                        "code": f"import os; os.system('sleep {daemons.mark} &')",
                    },
                ),
                Call(tool="Agent", arguments={"description": "b", "prompt": "inner", **background}),
                Call(tool="Agent", arguments={"description": "b", "prompt": "inner"}),
            ],
        )
    ]
    scripts = {
        "go": script,
        "inner": [
            Says(calls=[Call(tool="bash", arguments={"command": f"{inner.script}sleep 100", **background})]),
            Says("too late", after=never),
        ],
    }
    try:
        async with agents(tmp_path, scripts, Permission.DANGER_FULL_ACCESS) as at:
            name, jobs = handle((await at.agent("go", run_in_background=True)).text), jobs_of(at)
            await until(lambda: len(daemons.alive()) >= 5 and len(inner.alive()) == 8)
            with anyio.fail_after(PATIENCE):
                state = await jobs.stop(name)
            assert daemons.alive() == []
            assert inner.alive() == []
            assert state.status.startswith("stopped after ")
            again = await jobs.stop(name)
            assert again.status == state.status
            assert (await at.agent("more", resume=name)).error is None
    finally:
        never.set()
