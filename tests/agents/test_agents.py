"""Agents: what they do, and when they end."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import anyio
import pytest

import mcp_toolserver
from mcp_toolserver.capabilities.processes import JobQuery
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.agents import running_agent
from tests.agents.agents import HANDLE, PATIENCE, Agents, Call, Says, agents
from tests.support.processes import Daemons, until
from tests.support.workbench import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

PACKAGE = str(Path(mcp_toolserver.__file__).parent)


def handle(text: str) -> str:
    """The id of the agent in an answer."""
    return HANDLE.findall(text)[-1]


def last_line(text: str) -> str:
    """The last line of an answer, with the same id each time."""
    return HANDLE.sub("agent_x", text.rpartition("\n")[2])


def bash(command: str, *, background: bool = False) -> Call:
    return Call(tool="bash", arguments={"command": command, "run_in_background": background})


async def test_an_agent_returns_its_last_answer_and_what_it_used(at: Agents) -> None:
    script = [
        Says("I look.", [Call(tool="ls"), Call(tool="read_file", arguments={"path": "a.txt"})]),
        Says("The file says hello."),
    ]
    at.plays({"find it": script})
    (at.root / "a.txt").write_text("hello", encoding="utf-8")
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
    assert str(at.root) in first.system
    assert {"read_file", "write_file", "bash", "Agent"} <= {*first.tools}
    assert "hello" in second.results[1]


async def test_mistakes_of_the_model_are_told_to_it(at: Agents) -> None:
    many = [Call(tool="ls")] * 40
    script = [
        Says(calls=[Call(tool="fly"), Call(tool="ls", arguments="{"), Call(tool="ls", arguments='"."')]),
        Says(calls=[Call(tool="read_file", arguments={"path": "none"}), Call(tool="ls", arguments={"x": 1})]),
        Says(calls=many),
        Says("done"),
    ]
    at.plays({"try": script})
    result = await at.agent("try")
    assert result.error is None
    replies = at.model.requests[-1].results
    assert "there is no tool of this name" in replies[0]
    assert "not a JSON object" in replies[1]
    assert "not a JSON object" in replies[2]
    assert "none" in replies[3]
    assert "x" in replies[4]
    refused = [number for number, reply in enumerate(replies[5:]) if "at most 32 calls" in reply]
    assert refused == [*range(32, 40)]


async def test_a_long_result_is_shortened_and_a_picture_is_named(at: Agents) -> None:
    wanted = {"pattern": "ä", "path": "a", "output_mode": "content", "head_limit": 0}
    shows = [Call(tool="grep_search", arguments=wanted)]
    shows.append(Call(tool="view_image", arguments={"path": "a.png"}))
    at.plays({"read": [Says(calls=shows), Says("done")]})
    (at.root / "a").write_text(f"{'ä' * 25}\n" * 900, encoding="utf-8")
    (at.root / "a.png").write_bytes(PIXEL)
    await at.agent("read")
    text, picture = at.model.requests[-1].results
    assert len(text.encode()) < 41_000
    assert "characters more are not shown" in text
    assert "1 images are not shown to agents" in picture


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005fe02"
    "fe0def46b80000000049454e44ae426082"
)


async def test_reading_calls_run_together_and_others_in_their_order(at: Agents) -> None:
    # The first command waits for a file that the second call would write if it did not wait for the first.
    calls = [
        bash("sleep 0.2; ls; echo one > a"),
        Call(tool="read_file", arguments={"path": "a"}),
        Call(tool="grep_search", arguments={"pattern": "one"}),
        Call(tool="write_file", arguments={"path": "b", "content": "two"}),
    ]
    at.plays({"go": [Says(calls=calls), Says("done")]})
    person = Person()
    result = await at.agent("go", person)
    assert result.error is None
    steps = [said.partition("calls ")[2] for said in person.heard if "calls " in said]
    assert steps == ["bash", "read_file, grep_search", "write_file"]
    replies = at.model.requests[-1].results
    assert "b" not in replies[0].split()
    assert "one" in replies[1]


# --- limits ----------------------------------------------------------------------------------------------


def endless(into: int, out: int) -> list[Says]:
    """An agent that never ends, and what each turn costs."""
    return [Says(f"So far {number}.", [Call(tool="ls")], (into, out)) for number in range(1, 100)]


async def test_a_limit_ends_an_agent_with_its_partial_answer(tmp_path: Path, gate: threading.Event) -> None:
    inner = Call(tool="Agent", arguments={"description": "b", "prompt": "inner"})
    scripts = {
        "free": endless(0, 0),
        "long": endless(0, 500),
        "dear": endless(400, 0),
        "outer": [Says("So far 1.", [inner]), Says("Not asked any more.")],
        "inner": [Says("inner done", tokens=(0, 1000))],
        "wait": [Says("Done.", after=gate)],
    }
    settings = {
        "agent_turns": 3,
        "agent_tokens": 1000,
        "agent_cost": 0.5,
        "agent_input_price": 1000.0,
        "agent_output_price": 0.0,
        "agent_running": 2,
    }
    ends: tuple[tuple[str, int | None, int, str], ...] = (
        ("free", None, 3, "it reached the limit of 3 turns"),
        ("free", 2, 2, "it reached the limit of 2 turns"),
        ("free", 9, 3, "it reached the limit of 3 turns"),
        ("long", None, 2, "it reached the limit of 1,000 tokens"),
        ("dear", None, 2, "it reached the limit of $0.5"),
        # What an agent starts counts for its own limits.
        ("outer", None, 1, "it reached the limit of 1,000 tokens"),
    )
    async with agents(tmp_path, scripts, **settings) as at:
        for prompt, most, turns, why in ends:
            at.model.requests.clear()
            result = await at.agent(prompt, **({} if most is None else {"max_turns": most}))
            assert result.error == "failed"
            assert result.text.startswith(f"So far {turns}.\n[to go on, call Agent with resume: agent_")
            assert f"ended before it was done: {why}; {turns} turn" in result.text
            assert len(at.model.of(prompt)) == turns
        one = await at.agent("wait", name="one", run_in_background=True)
        assert one.text.startswith("The agent works in the background.")
        assert (await at.agent("wait", name="one", run_in_background=True)).error == "conflict"
        assert (await at.agent("wait", resume=handle(one.text))).error == "conflict"
        await at.agent("wait", run_in_background=True)
        assert (await at.agent("wait")).error == "unavailable"
        gate.set()


async def test_a_cost_that_is_unknown_ends_an_agent_that_has_a_limit_of_it(tmp_path: Path) -> None:
    async with agents(tmp_path, {"go": endless(400, 100)}, agent_cost=0.5) as at:
        result = await at.agent("go")
        assert "its cost is unknown, and the limit is $0.5; 1 turn" in result.text


async def test_the_limit_of_time_ends_an_agent_with_its_partial_answer(
    tmp_path: Path, gate: threading.Event
) -> None:
    scripts = {
        "ask": [Says("So far.", [Call(tool="ls")]), Says("Too late.", after=gate)],
        "call": [Says("So far.", [bash("sleep 100")]), Says("I was stopped.")],
    }
    async with agents(tmp_path, scripts, agent_seconds=2.0) as at:
        results = [await at.agent(prompt) for prompt in scripts]
        for result in results:
            assert result.error == "failed"
            assert result.text.startswith("So far.\n")
            assert "it reached the limit of 2 s" in result.text
        again = await at.agent("go on", resume=handle(results[-1].text))
        assert again.text.startswith("I was stopped.")
        assert "stopped before this call ended" in at.model.requests[-1].results[0]


async def test_a_conversation_that_is_full_ends_an_agent(at: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_agent, "CONVERSATION_BYTES", 1000)
    script = [Says("So far.", [Call(tool="read_file", arguments={"path": "a"})]), Says("Not asked any more.")]
    at.plays({"go": script})
    (at.root / "a").write_text("x" * 2000, encoding="utf-8")
    result = await at.agent("go")
    assert result.text.startswith("So far.\n")
    assert "its conversation reached the limit of 1,000 bytes; 1 turn" in result.text


async def test_an_agent_takes_few_calls_in_the_server(at: Agents) -> None:
    script = [Says(calls=[Call(tool="ls")]), Says("Done.")]
    at.plays({"first": script, "go": script})
    await at.agent("first")
    made = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal made
        made += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(count)
    try:
        await at.agent("go")
    finally:
        sys.setprofile(None)
    assert 500 < made < 3_000


# --- agents that go on -----------------------------------------------------------------------------------


async def test_a_resumed_agent_remembers(at: Agents) -> None:
    script = [Says("I am Ann.", [Call(tool="ls")]), Says("Done."), Says("I am still Ann.")]
    at.plays({"who": script})
    first = await at.agent("who", subagent_type="explorer")
    again = await at.agent("and now?", resume=handle(first.text))
    assert again.text.startswith("I am still Ann.")
    assert last_line(again.text) == "[agent_x finished; 3 turns, 45 tokens]"
    assert handle(again.text) == handle(first.text)
    asked = at.model.requests[-1]
    assert asked.said == ("who", "I am Ann.", "Done.", "and now?")
    assert len(asked.results) == 1
    assert "write_file" not in asked.tools


async def test_the_next_server_resumes_an_agent(tmp_path: Path) -> None:
    scripts = {"who": [Says("I am Ann."), Says("Still Ann.")]}
    async with agents(tmp_path, scripts) as at:
        first = handle((await at.agent("who")).text)
    async with agents(tmp_path, scripts) as at:
        assert (await at.agent("and now?", resume=first)).text.startswith("Still Ann.")


async def test_what_cannot_be_resumed_is_refused_and_an_unknown_type_lists_all(at: Agents) -> None:
    at.plays({"go": [Says("Done.")]})
    one, other = Person(owner="connection 1"), Person(owner="connection 2")
    resume = handle((await at.agent("go", one)).text)
    for person, arguments, kind in (
        (one, {"resume": "agent_000000000000"}, "not_found"),
        (one, {"subagent_type": "Plan"}, "invalid_input"),
        (one, {"name": "other"}, "invalid_input"),
        (other, {}, "not_found"),
    ):
        refused = await at.agent("more", person, **{"resume": resume, **arguments})
        assert refused.error == kind, arguments
    refused = await at.agent("go", subagent_type="Wizard")
    assert refused.error == "invalid_input"
    for name in ("Wizard", "general-purpose", "Explore", "Plan", "Verification"):
        assert name in refused.text


async def test_a_model_that_does_not_answer_is_an_error_and_later_a_partial_answer(at: Agents) -> None:
    scripts = {
        "fail": [Says(status=400)],
        "later": [Says("A start.", [Call(tool="ls")]), Says(status=400)],
    }
    at.plays(scripts)
    assert (await at.agent("fail")).error == "unavailable"
    later = await at.agent("later")
    assert later.error == "failed"
    assert later.text.startswith("A start.\n[to go on")
    assert "failed: " in later.text
    assert at.model.url not in later.text


async def test_an_answer_that_is_cut_or_empty_is_no_end_and_its_calls_are_not_made(at: Agents) -> None:
    making = bash("touch made")
    scripts = {
        "cut": [Says("I have", is_cut=True)],
        "empty": [Says("I start.", [Call(tool="ls")]), Says("")],
        "call": [Says("I make it.", [making], is_cut=True), Says("It is too long.")],
    }
    at.plays(scripts)
    found = {prompt: await at.agent(prompt) for prompt in scripts}
    assert [one.error for one in found.values()] == ["failed", "failed", None]
    assert found["cut"].text.startswith("I have\n[to go on, call Agent with resume: agent_")
    assert "its answer was cut at the limit of 8,192 tokens" in found["cut"].text
    assert "failed: Its model answered nothing" in found["empty"].text
    assert "cut at its longest" in at.model.requests[-1].results[0]
    assert not (at.root / "made").exists()


# --- in the background -----------------------------------------------------------------------------------


async def test_a_call_that_the_client_would_not_wait_for_goes_on_in_the_background(
    tmp_path: Path, gate: threading.Event
) -> None:
    async with agents(tmp_path, {"go": [Says("Done.", after=gate)]}, foreground_seconds=0.2) as at:
        result = await at.agent("go")
        assert result.text.startswith("The agent works in the background. TaskOutput waits")
        gate.set()
        query = JobQuery(handle=handle(result.text), limit=1000, wait=PATIENCE)
        with anyio.fail_after(PATIENCE):
            # A single wait is no longer than the client would wait.
            while (state := await at.jobs.output(query)).running:
                assert state.text == ""
        assert state.text.startswith("Done.\n")


async def test_a_background_agent_is_followed_step_by_step_and_its_result_is_read(
    at: Agents, gate: threading.Event
) -> None:
    begin = threading.Event()
    script = [Says("I start.", [Call(tool="ls")], after=begin), Says("The ätherial result.", after=gate)]
    at.plays({"go": script})
    started = await at.agent("go", run_in_background=True)
    name, jobs = handle(started.text), at.jobs
    next_step = JobQuery(handle=name, limit=10, wait=PATIENCE, until="output")
    steps: list[str] = []

    async def follow() -> None:
        while (state := await jobs.output(next_step)).running:
            steps.append(state.status)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        begin.set()
        await at.model.has_been_asked(2, "go")
        running = await jobs.output(JobQuery(handle=name, limit=1000))
        assert (running.running, running.text, running.next_offset) == (True, "", 0)
        assert running.notes == ("it said last: I start.",)
        assert re.fullmatch(r"running for \d+\.\d s: waits for its model; 1 turn, 15 tokens", running.status)
        gate.set()
    assert any(": waits for its model; 1 turn" in step for step in steps)
    state = await jobs.output(JobQuery(handle=name, limit=8, wait=PATIENCE))
    assert (state.running, state.text, state.next_offset) == (False, "The ätheri"[:7], 8)
    rest = await jobs.output(JobQuery(handle=name, limit=1000, offset=8))
    assert (state.text + rest.text).startswith("The ätherial result.\n[agent_")
    assert rest.next_offset == rest.total
    with pytest.raises(NotFound):
        await jobs.output(JobQuery(handle="agent_000000000000", limit=1))


# --- what an agent started -------------------------------------------------------------------------------


async def test_a_cancelled_call_ends_its_agent_and_all_it_started(full: Agents) -> None:
    daemons = Daemons()
    script = [Says(calls=[bash(f"{daemons.script}sleep 100", background=True), bash("sleep 100")])]
    full.plays({"go": script})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(full.agent, "go")
        await until(lambda: len(daemons.alive()) == 4)
        tasks.cancel_scope.cancel()
    assert daemons.alive() == []


async def test_the_end_of_an_agent_ends_what_it_left_behind(full: Agents) -> None:
    daemons = Daemons()
    command = bash(f"{daemons.script}sleep 100", background=True)
    full.plays({"go": [Says(calls=[command]), Says(calls=[bash("sleep 0.5")]), Says("Done.")]})
    result = await full.agent("go")
    assert result.text.startswith("Done.")
    assert daemons.alive() == []


async def test_stopping_an_agent_ends_everything_it_started(full: Agents, gate: threading.Event) -> None:
    daemons, inner = Daemons(), Daemons()
    code = f"import os; os.system('sleep {daemons.mark} &')"
    started = {"description": "b", "prompt": "inner"}
    calls = [
        bash(f"{daemons.script}sleep 100", background=True),
        Call(tool="REPL", arguments={"language": "python", "session": "new", "code": code}),
        Call(tool="Agent", arguments={**started, "run_in_background": True}),
        Call(tool="Agent", arguments=started),
    ]
    scripts = {
        "go": [Says("I start.", calls), Says("I go on.")],
        "inner": [
            Says(calls=[bash(f"{inner.script}sleep 100", background=True)]),
            Says("too late", after=gate),
        ],
    }
    full.plays(scripts)
    name, jobs = handle((await full.agent("go", run_in_background=True)).text), full.jobs
    await until(lambda: len(daemons.alive()) >= 5 and len(inner.alive()) == 8)
    with anyio.fail_after(PATIENCE):
        state = await jobs.stop(name)
    assert daemons.alive() == []
    assert inner.alive() == []
    assert state.status.startswith("stopped after ")
    again = await jobs.stop(name)
    assert again.status == state.status
    assert (await full.agent("more", resume=name)).error is None
