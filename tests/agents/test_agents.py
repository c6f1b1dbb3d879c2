"""Agents: what they do, and when they end."""

import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.processes import JobQuery
from mcp_toolserver.runtime.agents import running_agent
from mcp_toolserver.text.agents.compaction import SUMMARISE
from tests.agents.agents import HANDLE, PATIENCE, Agents, Call, Request, Says, agents, bash
from tests.agents.test_agent_files import GOOD, folder
from tests.agents.test_agent_rights import repository
from tests.support.processes import Daemons, until
from tests.support.workbench import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")


def handle(text: str) -> str:
    """The id of the agent in an answer."""
    return HANDLE.findall(text)[-1]


def last_line(text: str) -> str:
    """The last line of an answer, with the same id each time."""
    return HANDLE.sub("agent_x", text.rpartition("\n")[2])


@pytest.mark.requirement("CL-44")
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
    assert "hello" in at.model.requests[1].results[1]


async def test_an_agent_knows_where_it_works_and_what_the_project_says(at: Agents) -> None:
    root, secret = repository(at.plays({"go": [Says("Done.")]}).root), at.root.parent / "secret"
    secret.write_text("of the user", encoding="utf-8")
    for path in (folder(root) / "good.md", folder(root, ".agents/skills/good") / "SKILL.md"):
        path.write_text(GOOD, encoding="utf-8")
    (root / "CLAUDE.md").write_text("Use tabs.", encoding="utf-8")
    agents_md = root / "AGENTS.md"
    # What cannot be read, or leads out of the root, is not used.
    makes: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: None, "> Use tabs."),
        (lambda: agents_md.symlink_to(secret), "> Use tabs."),
        (lambda: os.mkfifo(agents_md), "> Use tabs."),
        (lambda: agents_md.write_text("Use\nspaces.\u202e", encoding="utf-8"), "> Use\n> spaces.\\u{202e}"),
        (lambda: agents_md.write_text("x" * 10**6, encoding="utf-8"), "AGENTS.md is left out"),
    )
    for make, says in makes:
        make()
        await at.agent("go")
        agents_md.unlink(missing_ok=True)
        system = at.model.requests[-1].system
        assert says in system
        assert ("Use tabs." in system) == ("tabs" in says)
        assert "of the user" not in system
        assert len(system) < 20_000
        for fact in (str(root), "Git branch: main, ", "mode: workspace-write; ", "- good: does good"):
            assert fact in system
        assert system.count("- good: does good") == 2


async def test_an_agent_sees_the_tools_that_work_for_it(at: Agents) -> None:
    at.plays({"go": [Says("Done.")]})
    text = "---\nname: clerk\ntools: Read, calculator, Config\n---\nDo."
    (folder(at.root) / "clerk.md").write_text(text, encoding="utf-8")
    useless = {"AskUserQuestion", "SendUserMessage", "EnterPlanMode", "Config", "calculator", "ToolSearch"}
    useless |= {"CallTool", "CronCreate", "CronList", "current_datetime", "StructuredOutput", "RunTaskPacket"}
    for kind in ("general-purpose", "Explore", "Plan", "Verification"):
        await at.agent("go", subagent_type=kind)
        assert not useless & {*at.model.requests[-1].tools}
    assert {"read_file", "write_file", "bash", "Agent", "TeamCreate"} <= {*at.model.of("go")[0].tools}
    await at.agent("go", subagent_type="clerk")
    assert {*at.model.requests[-1].tools} == {"read_file", "calculator", "Config"}
    await at.call("TeamCreate", name="crew", members=[{"name": "ann", "prompt": "go"}])
    await at.model.has_been_asked(6, "go")
    assert not {"TeamCreate", "TeamDelete"} & {*at.model.requests[-1].tools}
    await at.call("TeamDelete", team_id="crew")


async def test_agents_of_one_turn_run_together_and_a_result_names_the_files_that_they_changed(
    at: Agents,
) -> None:
    def writes(path: str) -> Call:
        return Call(tool="write_file", arguments={"path": path, "content": path})

    both = threading.Event()
    starts = [Call(tool="task", arguments={"prompt": prompt}) for prompt in ("one", "two")]
    first = [Says(calls=starts), Says("I stop.", [writes("c"), bash("echo d > d")]), Says(status=400)]
    one = [Says("One.", [writes("a")], after=both), Says("One is done.")]
    two = [Says("Two.", [writes("b")], after=both), Says(status=400)]
    at.plays({"go": first, "one": one, "two": two})
    name = handle((await at.agent("go", run_in_background=True)).text)
    await at.model.has_been_asked(1, "one")
    await at.model.has_been_asked(1, "two")
    both.set()
    result = await at.call("TaskOutput", task_id=name, until="end")
    replies = at.model.of("go")[1].results
    assert ["files changed: a]" in replies[0], "files changed: b]" in replies[1]] == [True, True]
    assert "failed: " in result.text
    assert re.search(r"^\[files changed: (a, b|b, a), c\]$", result.text, re.MULTILINE)


# Calls, with their results.
FORMS = (Path(__file__).parent / "forms.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.requirement("SW-65", "SW-66", "GR-23")
async def test_the_arguments_of_other_servers_are_taken_and_bad_ones_named(at: Agents) -> None:
    at.plays({"go": [Says("Done.")]})
    for line in FORMS:
        tool, expected, arguments = line.split(" ", 2)
        result = await at.call(tool, **json.loads(arguments))
        assert (result.error or "ok") == expected, (line, result.text)
        named = f"- {next(iter(json.loads(arguments)))}" in result.text
        assert named == (expected == "invalid_input"), line
        says_so = "[metadata was ignored: it is not kept]" in result.text
        assert says_so == (expected == "ok" and '"metadata"' in line), line
    assert {one.prompt for one in at.model.requests} >= {"go", "go\n\nLoad these skills first: brew."}


async def test_mistakes_of_the_model_are_told_to_it_and_a_long_result_is_shortened(at: Agents) -> None:
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
    says = ("there is no tool of this name", "not a JSON object", "not a JSON object", "none", "x")
    assert all(text in reply for text, reply in zip(says, replies, strict=False))
    refused = [number for number, reply in enumerate(replies[5:]) if "at most 32 calls" in reply]
    assert refused == [*range(32, 40)]
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
        "outer": [Says("So far 1.", [inner]), Says("So far 2.")],
        "inner": [Says("inner done", tokens=(0, 1000))],
        "wait": [Says("Done.", after=gate)],
        "starts": [Says(calls=[Call(tool="Agent", arguments={"prompt": "wait"})]), Says("I could not.")],
    }
    settings: dict[str, Any] = {"agent_turns": 3, "agent_tokens": 1000, "agent_running": 2}
    settings |= {"agent_cost": 0.5, "agent_input_price": 1000.0, "agent_output_price": 0.0}
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
            # One more turn, without tools, says what was done.
            assert result.text.startswith(f"So far {turns + 1}.\n[to go on, call Agent with resume: agent_")
            assert f"ended before it was done: {why}; {turns} turn" in result.text
            assert [bool(one.tools) for one in at.model.of(prompt)] == [True] * turns + [False]
            assert f"You cannot go on: {why}." in at.model.of(prompt)[-1].said[-1]
        one = await at.agent("wait", name="one", run_in_background=True)
        assert one.text.startswith("The agent works in the background.")
        assert (await at.agent("wait", name="one", run_in_background=True)).error == "conflict"
        assert (await at.agent("wait", resume=handle(one.text))).error == "conflict"
        # One that finds no place waits, and is stopped like others; the limit of time does not run meanwhile.
        name = handle((await at.agent("wait", run_in_background=True)).text)
        third = handle((await at.agent("starts", run_in_background=True)).text)
        query = JobQuery(handle=third, limit=1000)
        assert ": waits for a free place; 0 turns" in (await at.jobs.output(query)).status
        assert (await at.call("TaskStop", task_id=third)).text.startswith(f"{third}: stopped after ")
        await at.jobs.stop(name)
        # An agent would wait for the place that itself has.
        await at.agent("starts")
        assert "and no more may" in at.model.of("starts")[-1].results[0]
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
        "call": [Says("So far.", [bash("sleep 100")]), Says("I was stopped."), Says("I go on.")],
        "fast": [Says("I waited.")],
    }
    async with agents(tmp_path, scripts, agent_seconds=2.0, agent_running=1) as at:
        # Each waits for those before it, which does not count. The turn after the limit is limited as well.
        names = [handle((await at.agent(prompt, run_in_background=True)).text) for prompt in scripts]
        ends = [await at.jobs.output(JobQuery(handle=name, limit=999, wait=PATIENCE)) for name in names]
        assert [end.text.partition("\n")[0] for end in ends] == ["So far.", "I was stopped.", "I waited."]
        assert ["it reached the limit of 2 s" in end.status for end in ends] == [True, True, False]
        again = await at.agent("go on", resume=names[1])
        assert again.text.startswith("I go on.")
        assert "stopped before this call ended" in at.model.requests[-1].results[0]


TURNS = 24
"""Enough for two summaries."""


async def test_a_long_task_fits_into_the_context_and_what_was_decided_stays(tmp_path: Path) -> None:
    context, output = 60_000, 4_000
    settings: dict[str, Any] = {
        "agent_context_tokens": context,
        "agent_output_tokens": output,
        "agent_tokens": 10**8,
    }
    decided: list[str] = []

    def script(request: Request) -> Says:
        tokens = request.characters // 4
        assert tokens + output <= context
        if request.said[-1] == SUMMARISE:
            found = dict.fromkeys(re.findall(r"I decide \w+", "".join(request.said)))
            return Says(f"{'; '.join(found)}.", tokens=(tokens, 100))
        if len(decided) == TURNS:
            return Says("All is done.", tokens=(tokens, 10))
        decided.append(f"I decide d{len(decided)}x")
        reads = [Call(tool="read_file", arguments={"path": "a"})] * (32 if len(decided) == TURNS // 2 else 1)
        return Says(f"{decided[-1]}. {'I think. ' * 1_500}", reads, (tokens, 3_000))

    async with agents(tmp_path, {"go": script}, agent_turns=70, **settings) as at:
        (at.root / "a").write_text(f"{'x' * 97}\n" * 400, encoding="utf-8")
        result = await at.agent("go")
        last = "".join(at.model.requests[-1].said)
        assert result.text.startswith("All is done.\n")
        assert [one for one in decided if one not in last] == []
        assert sum(one.said[-1] == SUMMARISE and not one.tools for one in at.model.requests) > 1
        kept = json.loads(await at.jobs.transcript(handle(result.text)))["messages"]
        assert sum("x" * 97 in str(one) for one in kept if one["role"] == "tools") == TURNS
        # A resumed agent goes on from the summary.
        again = await at.agent("and now?", resume=handle(result.text))
        assert again.text.startswith("All is done.\n")
        assert [one for one in decided if one not in "".join(at.model.requests[-1].said)] == []


async def test_a_conversation_is_shortened_for_its_model_and_loses_its_oldest_results_in_the_store(
    at: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(request: Request) -> Says:
        if request.characters > 150_000:
            return Says("context_length_exceeded", status=400)
        if request.said[-1] == SUMMARISE:
            return Says("I have read a.")
        reads = [Call(tool="read_file", arguments={"path": "a"})] * 6
        return Says("I read.", reads) if len(request.said) < 4 else Says("Done.")

    monkeypatch.setattr(running_agent, "CONVERSATION_BYTES", 300_000)
    at.plays({"go": script, "long": lambda _: Says("context_length_exceeded", status=400)})
    (at.root / "a").write_text(f"{'x' * 97}\n" * 400, encoding="utf-8")
    result = await at.agent("go")
    assert result.text.startswith("Done.\n")
    kept = json.loads(await at.jobs.transcript(handle(result.text)))["messages"]
    sizes = [len(one["content"][0]["text"]) for one in kept if one["role"] == "tools"]
    assert sizes[0] < 100 < 30_000 < sizes[-1]
    never = await at.agent("long")
    assert "ended before it was done: its conversation is longer than the model can read" in never.text


# --- agents that go on -----------------------------------------------------------------------------------


async def test_a_resumed_agent_remembers_and_what_cannot_be_resumed_is_refused(at: Agents) -> None:
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


async def test_only_a_complete_answer_is_an_end_and_calls_that_are_cut_are_not_made(at: Agents) -> None:
    start, cut = Says("I start.", [Call(tool="ls")]), Says("Again.", [bash("touch made")], is_cut=True)
    scripts = {
        "fail": [Says(status=400)],
        "later": [start, Says(status=400)],
        "empty": [start, Says("")],
        "half": [Says("I have", is_cut=True), Says("In short, no.")],
        "calls": [cut, cut, cut, Says("I am stuck.")],
        "call": [cut, Says("It is too long.")],
    }
    at.plays(scripts)
    found = {prompt: await at.agent(prompt) for prompt in scripts}
    assert [one.error for one in found.values()] == ["unavailable", *["failed"] * 4, None]
    for prompt, begins, says in (
        ("fail", "The model's provider answered 400", "To try again, call Agent with resume: agent_"),
        ("later", "I start.\n[to go on, call Agent with resume: agent_", "failed: "),
        ("empty", "I start.\n[to go on", "failed: Its model answered nothing"),
        ("half", "In short, no.\n[to go on", "its answer was cut at the limit of 8,192 tokens"),
        ("calls", "I am stuck.\n[to go on", "its answer was cut at the limit of 8,192 tokens"),
    ):
        assert found[prompt].text.startswith(begins)
        assert says in found[prompt].text
        assert at.model.url not in found[prompt].text
    assert "write a long file in parts" in at.model.requests[-1].results[0]
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


# --- what an agent started -------------------------------------------------------------------------------


async def test_a_cancelled_call_or_the_end_of_an_agent_ends_all_it_started(full: Agents) -> None:
    daemons = Daemons()
    script = [Says(calls=[bash(f"{daemons.script}sleep 100", background=True), bash("sleep 100")])]
    full.plays({"go": script})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(full.agent, "go")
        await until(lambda: len(daemons.alive()) == 4)
        tasks.cancel_scope.cancel()
    assert daemons.alive() == []
    # So does the end of the agent, which says so.
    command = bash(f"{daemons.script}sleep 100", background=True)
    full.plays({"go": [Says(calls=[command]), Says(calls=[bash("sleep 0.5")]), Says("Done.")]})
    result = await full.agent("go")
    assert re.match(r"Done\.\n\[its command bg_\w+ ended with it: ", result.text)
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
    assert len(full.model.of("go")) == 1
    again = await jobs.stop(name)
    assert again.status == state.status
    assert (await full.agent("more", resume=name)).error is None
