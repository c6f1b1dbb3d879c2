"""Teams: agents that run at the same time, the messages between them, and their end."""

import re
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.runtime.agents import agents as agents_of_a_server
from mcp_toolserver.runtime.agents import running_agent
from tests.agents.agents import HANDLE, PATIENCE, Agents, Call, Request, Says, agents, bash
from tests.support.processes import Daemons, until
from tests.support.workbench import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLE = {
    "name": "crew",
    "members": [
        {"name": "ann", "prompt": "Watch the tests."},
        {"name": "bob", "prompt": "Watch the tests.", "subagent_type": "Explore"},
    ],
}


def send(to: str, message: str = "hello") -> Call:
    return Call(tool="SendMessage", arguments={"to": to, "message": message})


MakeCrew = Callable[[Sequence[Says], Sequence[Says]], "Crew"]


class Crew:
    """A server, and the team `crew` of `ann` and `bob` on it."""

    def __init__(self, at: Agents, ann: Sequence[Says], bob: Sequence[Says]) -> None:
        self.at = at.plays({"I am ann.": ann, "I am bob.": bob})
        self.ids: dict[str, str] = {}
        self.id = ""

    async def create(self) -> str:
        """Start the team; the answer."""
        members = [{"name": one, "prompt": f"I am {one}."} for one in ("ann", "bob")]
        result = await self.at.call("TeamCreate", name="crew", members=members)
        assert result.error is None, result.text
        self.id = re.findall(r"team_[0-9a-f]{12}", result.text)[0]
        self.ids = dict(zip(("ann", "bob"), HANDLE.findall(result.text), strict=True))
        return result.text

    async def ended(self, name: str) -> JobState:
        """The state of a member once it has ended."""
        state = await self.at.jobs.output(JobQuery(handle=self.ids[name], limit=10_000, wait=PATIENCE))
        assert not state.running
        return state

    def of(self, name: str) -> list[Request]:
        """What the model of a member was asked."""
        return self.at.model.of(f"I am {name}.")


@pytest_asyncio.fixture(loop_scope="session")
async def crew(at: Agents, gate: threading.Event) -> AsyncGenerator[MakeCrew]:
    """Makes the team of what its members say."""
    yield lambda ann, bob: Crew(at, ann, bob)
    gate.set()
    await at.call("TeamDelete", team_id="crew")


async def test_members_work_at_the_same_time_and_send_each_other_messages(
    crew: MakeCrew, gate: threading.Event
) -> None:
    sends = [send("bob", "find the key"), send("*", "to all"), send("leader", "I found\nit")]
    bob = [Says("I wait.", [Call(tool="ls")], after=gate), Says("I read it."), Says("never")]
    last = threading.Event()
    team = crew([Says(calls=sends), Says("ann is done", after=last)], bob)
    created = await team.create()
    assert created.startswith(f"Team crew ({team.id}), 2 members:\n- ann: agent_")
    # A message to a leader that is a client ends its wait for news.
    news = await team.at.call("TaskOutput", task_id=team.ids["ann"], wait_ms=60_000)
    assert news.text.startswith("[message to you: I found it]\n[running for ")
    last.set()
    state = await team.ended("ann")
    assert state.text.startswith("ann is done")
    assert "[message to you: I found it]" in state.text
    gate.set()
    assert (await team.ended("bob")).text.startswith("I read it.")
    assert team.of("ann")[-1].results == ("Sent to bob.", "Sent to bob.", "Sent to leader.")
    assert "Message from ann:\nfind the key" in team.of("bob")[-1].said
    assert "Message from ann:\nto all" in team.of("bob")[-1].said
    introduced = "You are a member of the team crew, which works at the same time: bob."
    assert introduced in team.of("ann")[0].prompt


async def test_a_message_that_comes_with_the_last_answer_gets_another_turn(
    crew: MakeCrew, gate: threading.Event
) -> None:
    bob = [Says("I am done.", after=gate), Says("Not yet: I read it.")]
    team = crew([Says("ann is done")], bob)
    await team.create()
    await team.at.model.has_been_asked(1, "I am bob.")
    sent = await team.at.call("SendMessage", to="bob", message="wait")
    assert sent.text == "Sent to bob."
    gate.set()
    assert (await team.ended("bob")).text.startswith("Not yet: I read it.")
    assert "Message from leader:\nwait" in team.of("bob")[-1].said


async def test_an_agent_reaches_the_agent_that_started_it_and_not_others(
    at: Agents, gate: threading.Event
) -> None:
    inner = Call(tool="Agent", arguments={"description": "x", "prompt": "inner", "name": "ina"})
    at.model.scripts = {
        "outer": [Says(calls=[inner]), Says("Done.")],
        "inner": [Says(calls=[send("leader", "from below"), send("far")]), Says("Done.")],
        "far": [Says("Done.", after=gate)],
    }
    await at.agent("far", Person(owner="connection 2"), name="far", run_in_background=True)
    assert (await at.agent("outer")).text.startswith("Done.")
    sent, refused = at.model.of("inner")[-1].results
    assert sent == "Sent to leader."
    assert "No running agent within reach is named far. There is: nobody." in refused
    assert "Message from ina:\nfrom below" in at.model.of("outer")[-1].said
    assert "Others call you ina." in at.model.of("inner")[0].system


async def test_a_message_to_an_agent_that_has_ended_is_refused(crew: MakeCrew) -> None:
    team = crew([Says("ann is done")], [Says("bob is done")])
    await team.create()
    await team.ended("ann")
    await team.ended("bob")
    for to, error, says in (
        (team.ids["ann"], "conflict", f"call Agent with resume: {team.ids['ann']}"),
        ("ann", "not_found", "ann"),
        ("agent_000000000000", "not_found", ""),
        ("*", "not_found", ""),
    ):
        refused = await team.at.call("SendMessage", to=to, message="hello")
        assert (refused.error, says in refused.text) == (error, True), to


async def test_mailboxes_are_limited(
    crew: MakeCrew, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_agent, "MAX_UNREAD", 2)
    monkeypatch.setattr(running_agent, "MAX_NOTES", 1)
    ann = [Says(calls=[send("leader", "one"), send("leader", "two")]), Says("ann is done")]
    team = crew(ann, [Says("bob is done", after=gate), Says("read")])
    await team.create()
    await team.ended("ann")
    assert "The leader has 1 messages already" in team.of("ann")[-1].results[1]
    errors = [(await team.at.call("SendMessage", to="bob", message="x")).error for _ in range(3)]
    assert errors == [None, None, "conflict"]
    gate.set()
    await team.ended("bob")


async def test_deleting_a_team_stops_its_members_and_all_they_started(full: Agents) -> None:
    daemons = Daemons()
    command = {"command": f"{daemons.script}sleep 100", "run_in_background": True}
    wait = bash("sleep 100")
    script = [Says(calls=[Call(tool="bash", arguments=command), wait])]
    team = Crew(full, script, script)
    await team.create()
    await until(lambda: len(daemons.alive()) == 8)
    deleted = await full.call("TeamDelete", team_id=team.id)
    assert daemons.alive() == []
    assert deleted.text.count("stopped after") == 2
    again = await full.call("TeamDelete", team_id="crew")
    assert (again.error, "gone already" in again.text) == ("not_found", True)


async def test_a_team_is_started_whole_or_not_at_all(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agents(tmp_path, {}, agent_running=2) as at:

        async def error(name: str, *members: Mapping[str, str]) -> str | None:
            return (await at.call("TeamCreate", name=name, members=[*members])).error

        wait = [Says("Done.", after=gate)]
        team = Crew(at, wait, wait)
        ann, bob = {"name": "ann", "prompt": "I am ann."}, {"name": "bob", "prompt": "I am bob."}
        assert await error("crew", ann, ann) == "conflict"
        assert await error("crew", ann, {**bob, "subagent_type": "Wizard"}) == "invalid_input"
        with monkeypatch.context() as patched:
            patched.setattr(agents_of_a_server, "MAX_WAITING", 0)
            assert await error("crew", ann, bob, {**bob, "name": "third"}) == "unavailable"
        await team.create()
        assert await error("crew", {**bob, "name": "third"}) == "conflict"
        # A member that finds no place waits, and whoever joins the team ends with it.
        joined = await at.call(
            "task", prompt="I am bob.", name="late", team_name="crew", run_in_background=True
        )
        assert joined.error is None
        deleted = await at.call("TeamDelete", team_name="crew")
        assert (deleted.error, deleted.text.count("stopped after")) == (None, 3)


async def test_tasks_are_members_without_names_of_their_own(crew: MakeCrew) -> None:
    team = crew([Says("ann is done")], [Says("bob is done")])
    tasks = [{"prompt": "I am ann."}, {"prompt": "I am bob.", "description": "be bob"}]
    result = await team.at.call("TeamCreate", name="crew", tasks=tasks)
    assert re.findall(r"^- ([\w-]+):", result.text, re.MULTILINE) == ["member-1", "member-2"]
    team.ids = dict(zip(("ann", "bob"), HANDLE.findall(result.text), strict=True))
    assert (await team.ended("bob")).text.startswith("bob is done")


async def test_the_teams_of_an_owner_who_left_are_gone(crew: MakeCrew, gate: threading.Event) -> None:
    wait = [Says("Done.", after=gate)]
    team = crew(wait, wait)
    await team.create()
    agents_of = team.at.jobs.agents
    running = list(agents_of.running.values())
    agents_of.forget("local")
    for agent in running:
        await agent.wait(PATIENCE)
    assert agents_of.teams == {}
