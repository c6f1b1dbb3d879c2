"""Teams: agents that run at the same time, the messages between them, and their end."""

import re
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.runtime.agents import running_agent
from mcp_toolserver.runtime.agents.agents import CallAgents
from tests.agents.agents import HANDLE, PATIENCE, Agents, Call, Request, Says, agents
from tests.support.processes import Daemons, until
from tests.support.workbench import Person
from tests.support.workshop import granted


def send(to: str, message: str = "hello") -> Call:
    return Call(tool="SendMessage", arguments={"to": to, "message": message})


class Crew:
    """A server, and the team `crew` of `ann` and `bob` on it."""

    def __init__(self, at: Agents) -> None:
        self.at = at
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
        jobs = granted(self.at.server, Capability.AGENTS).agents
        assert isinstance(jobs, CallAgents)
        state = await jobs.output(JobQuery(handle=self.ids[name], limit=10_000, wait=PATIENCE))
        assert not state.running
        return state

    def of(self, name: str) -> list[Request]:
        """What the model of a member was asked."""
        return [one for one in self.at.model.requests if one.prompt.startswith(f"I am {name}.")]


@asynccontextmanager
async def crew(
    folder: Path, ann: Sequence[Says], bob: Sequence[Says], *gates: threading.Event, **settings: Any
) -> AsyncGenerator[Crew]:
    """A server on which the team can be started; opens the gates at the end."""
    try:
        async with agents(folder, {"I am ann.": ann, "I am bob.": bob}, **settings) as at:
            yield Crew(at)
    finally:
        for gate in gates:
            gate.set()


async def test_members_work_at_the_same_time_and_send_each_other_messages(tmp_path: Path) -> None:
    gate = threading.Event()
    ann = [Says(calls=[send("bob", "find the key")]), Says("ann is done")]
    bob = [Says("I wait.", [Call(tool="ls")], after=gate), Says("I read it."), Says("never")]
    async with crew(tmp_path, ann, bob, gate) as at:
        created = await at.create()
        assert created.startswith(f"Team crew ({at.id}), 2 members:\n- ann: agent_")
        assert (await at.ended("ann")).text.startswith("ann is done")
        gate.set()
        assert (await at.ended("bob")).text.startswith("I read it.")
        assert at.of("ann")[-1].results == ("Sent to bob.",)
        assert at.of("bob")[-1].said[-1] == "Message from ann:\nfind the key"
        assert (
            "You are a member of the team crew, which works at the same time: bob." in at.of("ann")[0].prompt
        )


async def test_a_message_that_comes_with_the_last_answer_gets_another_turn(tmp_path: Path) -> None:
    gate = threading.Event()
    bob = [Says("I am done.", after=gate), Says("Not yet: I read it.")]
    async with crew(tmp_path, [Says("ann is done")], bob, gate) as at:
        await at.create()
        await at.at.model.has_been_asked(1, "I am bob.")
        sent = await at.at.call("SendMessage", to="bob", message="wait")
        assert sent.text == "Sent to bob."
        gate.set()
        assert (await at.ended("bob")).text.startswith("Not yet: I read it.")
        assert "Message from leader:\nwait" in at.of("bob")[-1].said


async def test_everybody_and_the_leader_can_be_written_to(tmp_path: Path) -> None:
    gate = threading.Event()
    ann = [Says(calls=[send("*", "to all"), send("leader", "I found\nit")]), Says("ann is done")]
    bob = [Says("I wait.", [Call(tool="ls")], after=gate), Says("I read it.")]
    async with crew(tmp_path, ann, bob, gate) as at:
        await at.create()
        state = await at.ended("ann")
        assert "[message to you: I found it]" in state.text
        assert at.of("ann")[-1].results == ("Sent to bob.", "Sent to leader.")
        gate.set()
        await at.ended("bob")
        assert "Message from ann:\nto all" in at.of("bob")[-1].said


async def test_an_agent_reaches_the_agent_that_started_it_and_not_others(tmp_path: Path) -> None:
    inner = Call(tool="Agent", arguments={"description": "x", "prompt": "inner", "name": "ina"})
    gate = threading.Event()
    scripts = {
        "outer": [Says(calls=[inner]), Says("Done.")],
        "inner": [Says(calls=[send("leader", "from below"), send("far")]), Says("Done.")],
        "far": [Says("Done.", after=gate)],
    }
    try:
        async with agents(tmp_path, scripts) as at:
            await at.agent("far", Person(owner="connection 2"), name="far", run_in_background=True)
            assert (await at.agent("outer")).text.startswith("Done.")
            sent, refused = at.model.of("inner")[-1].results
            assert sent == "Sent to leader."
            assert "No running agent within reach is named far. There is: nobody." in refused
            assert "Message from ina:\nfrom below" in at.model.of("outer")[-1].said
            gate.set()
    finally:
        gate.set()


async def test_a_message_to_an_agent_that_has_ended_is_refused(tmp_path: Path) -> None:
    async with crew(tmp_path, [Says("ann is done")], [Says("bob is done")]) as at:
        await at.create()
        await at.ended("ann")
        by_id = await at.at.call("SendMessage", to=at.ids["ann"], message="hello")
        assert by_id.error == "conflict"
        assert f"call Agent with resume: {at.ids['ann']}" in by_id.text
        by_name = await at.at.call("SendMessage", to="ann", message="hello")
        assert by_name.error == "not_found"
        assert (
            await at.at.call("SendMessage", to="agent_000000000000", message="hello")
        ).error == "not_found"
        assert (await at.at.call("SendMessage", to="*", message="hello")).error == "not_found"


async def test_mailboxes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_agent, "MAX_UNREAD", 2)
    monkeypatch.setattr(running_agent, "MAX_NOTES", 1)
    gate = threading.Event()
    ann = [Says(calls=[send("leader", "one"), send("leader", "two")]), Says("ann is done")]
    async with crew(tmp_path, ann, [Says("bob is done", after=gate), Says("read")], gate) as at:
        await at.create()
        await at.ended("ann")
        assert "The leader has 1 messages already" in at.of("ann")[-1].results[1]
        errors = [(await at.at.call("SendMessage", to="bob", message="x")).error for _ in range(3)]
        assert errors == [None, None, "conflict"]
        gate.set()
        await at.ended("bob")


async def test_deleting_a_team_stops_its_members_and_all_they_started(tmp_path: Path) -> None:
    daemons = Daemons()
    command = {"command": f"{daemons.script}sleep 100", "run_in_background": True}
    script = [
        Says(
            calls=[
                Call(tool="bash", arguments=command),
                Call(tool="bash", arguments={"command": "sleep 100"}),
            ]
        )
    ]
    settings = {"mode": Permission.DANGER_FULL_ACCESS}
    async with crew(tmp_path, script, script, **settings) as at:
        await at.create()
        await until(lambda: len(daemons.alive()) == 8)
        deleted = await at.at.call("TeamDelete", team_id=at.id)
        assert daemons.alive() == []
        assert deleted.text.count("stopped after") == 2
        again = await at.at.call("TeamDelete", team_id="crew")
        assert again.error == "not_found"
        assert "gone already" in again.text


async def test_a_team_is_started_whole_or_not_at_all(tmp_path: Path) -> None:
    never = threading.Event()
    wait = [Says("Done.", after=never)]
    async with crew(tmp_path, wait, wait, never, agent_running=2) as at:

        async def error(name: str, *members: Mapping[str, str]) -> str | None:
            return (await at.at.call("TeamCreate", name=name, members=[*members])).error

        ann, bob = {"name": "ann", "prompt": "I am ann."}, {"name": "bob", "prompt": "I am bob."}
        assert await error("crew", ann, ann) == "conflict"
        assert await error("crew", ann, {**bob, "subagent_type": "Wizard"}) == "invalid_input"
        assert await error("crew", ann, bob, {**bob, "name": "third"}) == "unavailable"
        await at.create()
        assert await error("crew", {**bob, "name": "third"}) == "conflict"
        assert (await at.at.call("TeamDelete", team_id="crew")).error is None


async def test_tasks_are_members_without_names_of_their_own(tmp_path: Path) -> None:
    async with crew(tmp_path, [Says("ann is done")], [Says("bob is done")]) as at:
        tasks = [{"prompt": "I am ann."}, {"prompt": "I am bob.", "description": "be bob"}]
        result = await at.at.call("TeamCreate", name="crew", tasks=tasks)
        assert re.findall(r"^- ([\w-]+):", result.text, re.MULTILINE) == ["member-1", "member-2"]
        neither = await at.at.call("TeamCreate", name="other")
        assert neither.error == "invalid_input"
        at.ids = dict(zip(("ann", "bob"), HANDLE.findall(result.text), strict=True))
        assert (await at.ended("bob")).text.startswith("bob is done")


async def test_the_teams_of_an_owner_who_left_are_gone(tmp_path: Path) -> None:
    never = threading.Event()
    wait = [Says("Done.", after=never)]
    async with crew(tmp_path, wait, wait, never) as at:
        await at.create()
        agents_of = granted(at.at.server, Capability.AGENTS).agents
        assert isinstance(agents_of, CallAgents)
        running = list(agents_of.agents.running.values())
        agents_of.agents.forget("local")
        for agent in running:
            await agent.wait(PATIENCE)
        assert agents_of.agents.teams == {}
