"""The agents of a server, and what one call may do with them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.agents import EVERYBODY, LEADER, AgentState, AgentTask, Team
from mcp_toolserver.capabilities.call_scope import LOCAL, Report, longest_wait
from mcp_toolserver.capabilities.model import UserText
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, ToolError, Unavailable
from mcp_toolserver.runtime.agents.agent_files import configured_model, custom_types, limited_to, notes_on
from mcp_toolserver.runtime.agents.briefing import briefing
from mcp_toolserver.runtime.agents.isolation import Isolation, isolated, with_worktree, without_worktree
from mcp_toolserver.runtime.agents.running_agent import RunningAgent, ended_error
from mcp_toolserver.runtime.agents.spending import Spending
from mcp_toolserver.stores.agents import AgentRecord, StoredAgents
from mcp_toolserver.stores.stored import StoredPreferences
from mcp_toolserver.text.agents.conversation import Conversation
from mcp_toolserver.text.agents.types import (
    BUILT_IN,
    AgentType,
    canonical_type,
    choices,
    ending,
    member_prompt,
    result_text,
    spent,
    system_prompt,
)
from mcp_toolserver.text.lines.encoding import decode_page, head_bytes
from mcp_toolserver.text.lines.escape_invisible import visible

if TYPE_CHECKING:
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.pipeline.registry import Entry
    from mcp_toolserver.runtime.files.workspace import Workspace
    from mcp_toolserver.runtime.host_services import ServiceRequest
    from mcp_toolserver.runtime.providers import ProviderContext

PREFIX = "agent_"

TEAM_PREFIX = "team_"

MAX_DEPTH = 5
"""Agents that start each other."""

MAX_WAITING = 64
"""Agents that wait for a place."""

_ENDED_WITH_IT = 20
"""Commands and agents that an agent names when they end with it."""

_SHOWN = 64
"""Characters of an unknown type that an error repeats."""

_SKIPPED = 5
"""Agent files that an error about an unknown type names."""

_SO_FAR = 2_000
"""Bytes of what a running agent said last."""

_ADVICE = "Say in your answer what you could not do."


class ServerAgents:
    """All agents that run in this server."""

    def __init__(self, context: ProviderContext) -> None:
        self.context = context
        self.store = StoredAgents(context.database)
        self.running: dict[str, RunningAgent] = {}
        """By handle."""
        self.teams: dict[str, RunningTeam] = {}
        """By id."""
        self._places = anyio.CapacityLimiter(context.agent_limits.running)
        self._owners: set[str] = set()
        """Who started agents in this server."""

    def start(self, agent: RunningAgent) -> None:
        """Start an agent, which waits for a place if there is none."""
        handle = agent.record.handle
        if self._places.available_tokens > 0:
            self._places.acquire_on_behalf_of_nowait(agent)
            agent.has_place = True
        self.running[handle] = agent
        self._owners.add(agent.record.owner)
        self.context.changes.changed("agent", handle)

        async def run() -> None:
            try:
                await agent.run()
            finally:
                if agent.has_place:
                    self._places.release_on_behalf_of(agent)
                del self.running[handle]
                if agent.report is None:
                    state = agent.state()
                    how = f"{handle} ({state.description}) {ending(state)}"
                    self.context.changes.on_end(agent.record.owner, how)

        agent.task = self.context.background.start(run, name=handle)

    async def wait_for_place(self, agent: RunningAgent) -> None:
        """Wait until fewer agents run than may; who waited longest is next."""
        await self._places.acquire_on_behalf_of(agent)
        agent.has_place = True

    def check_room(self, record: AgentRecord, *, waits: bool = True, more: int = 0) -> None:
        """Find out whether the agent, and `more` with it, can be started.

        Raises:
            Unavailable: too many agents run, and the agent may not wait, or too many wait.
            Conflict: the agent runs, or its name is taken.
        """
        running, most = self.running, self.context.agent_limits.running
        if len(running) + more >= most + (MAX_WAITING if waits else 0):
            raise Unavailable(
                f"{len(running)} agents run or wait already, and no more may. Stop one with TaskStop, wait "
                "for one to end, start it in the background, or do the work yourself."
            )
        if record.handle in running:
            raise Conflict(f"{record.handle} is running. TaskOutput waits for its end, and TaskStop ends it.")
        others = (agent.record for agent in running.values())
        if record.name and any(other.name == record.name and other.owner == record.owner for other in others):
            raise Conflict(f"An agent named {record.name} runs already. Use another name.")

    def forget(self, owner: str) -> None:
        """End the agents of `owner`, who will not return, and remove their records, except for those of the
        user of this machine."""
        if owner in self._owners:
            self.context.background.start(
                partial(self.end_agents_of, owner), name=f"the end of the agents of {owner}"
            )

    def running_of(self, handle: str) -> list[str]:
        """Sentences on the background commands and agents of an agent, which end with it."""
        commands = self.context.commands_or_none
        scripts = commands.running_of(handle) if commands else {}
        own = [f"its command {name} ended with it: {script[:_SHOWN]}" for name, script in scripts.items()]
        agents = (one for one in self.running.values() if one.record.owner == handle)
        return [*own, *(f"its agent {_name(one)} ended with it" for one in agents)][:_ENDED_WITH_IT]

    async def clean_up(self, handle: str, isolation: Isolation | None) -> str:
        """End everything else that an agent started, and wait until it is gone; returns a sentence for who
        started it, or nothing."""
        await self.context.end_owner(handle)
        return "" if isolation is None else await isolation.end()

    async def end_agents_of(self, owner: str) -> None:
        """End the agents of `owner`, who will not return, and remove their records."""
        if owner not in self._owners:
            return
        self._owners.discard(owner)
        self.teams = {id_: team for id_, team in self.teams.items() if team.owner != owner}
        async with anyio.create_task_group() as tasks:
            for agent in self.running.values():
                if agent.record.owner == owner:
                    tasks.start_soon(agent.stop)
        if owner != LOCAL:
            await self.store.remove(owner)


@dataclass(frozen=True)
class CallAgents:
    """Agents with at most the rights of the call, teams of them, and agents as background jobs.

    Methods raise `NotFound` where the caller has no such agent or team, and `Conflict` where the agent runs
    already, has ended or has too many messages, or where a name is taken.
    """

    agents: ServerAgents
    request: ServiceRequest

    @property
    def _owner(self) -> str:
        return self.request.scope.owner

    async def run(self, task: AgentTask, report: Report) -> AgentState:
        """Run an agent to its end; return it while it runs if it is for the background, or takes longer than
        the client waits for an answer.

        Raises:
            InvalidInput: there is no such type.
            NotFound: there is no such agent to resume, or no such team.
            Conflict: the agent to resume runs, or its name is taken.
            Denied: the call comes from an agent at the greatest depth.
            Unavailable: there is no model, too many agents run, or the model did not answer at all.
        """
        team = self._team(task.team) if task.team else None
        if team is not None:
            others = [_name(one) for one in team.agents]
            task = replace(task, prompt=member_prompt(task.prompt, team=team.name, others=others))
        agent = await self._prepared(task, None if task.background else report)
        self.agents.start(agent)
        if team is not None and (now := self.agents.teams.get(team.id)) is not None:
            self.agents.teams[team.id] = replace(now, agents=(*now.agents, agent))
        if task.background:
            return agent.state()
        try:
            await agent.wait(self._seconds_to_answer())
        except BaseException:
            await agent.stop()
            raise
        agent.report = None
        state = agent.state()
        if agent.has_ended and agent.error is not None and not state.turns:
            agent.error.args = (f"{agent.error} To try again, call Agent with resume: {state.handle}.",)
            raise agent.error
        return state

    async def transcript(self, handle: str) -> str:
        """The whole conversation as JSON."""
        return await self.agents.store.transcript(handle, self._owner)

    async def output(self, query: JobQuery) -> JobState:
        """See `JobSource.output`. An agent has output once it has ended: its result."""
        agent = self._running(query.handle)
        if agent is not None:
            seconds = min(query.wait, self._seconds_to_answer())
            await agent.wait(seconds, query.until)
        state = await self._state(query.handle)
        if agent is not None and query.is_read:
            # The next wait for news ends with newer messages only.
            agent.has_unread_notes = False
        return _job(state, query)

    async def stop(self, handle: str) -> JobState:
        agent = self._running(handle)
        if agent is not None:
            await agent.stop()
        state = await self._state(handle)
        if state.status == "running":
            raise Conflict(f"{handle} runs in another server of this workspace; only that one can stop it.")
        return _job(state, JobQuery(handle=handle, limit=0))

    async def send(self, to: str, message: str) -> tuple[str, ...]:
        """Send a message to an agent by its name or handle, to `LEADER` or to `EVERYBODY`; each reads it with
        its next turn. An agent reaches those that were started together with it, those that it started,
        and its leader.

        Returns:
            The names of those who get it.
        """
        sender = self.agents.running.get(self._owner)
        text = f"Message from {_name(sender)}:\n{message}"
        if to == LEADER and sender is not None:
            leader = self.agents.running.get(sender.record.owner)
            if leader is not None:
                leader.deliver(text)
            else:
                # A leader that is no agent finds the message with the output of the sender.
                await sender.tell_leader(message)
            return (LEADER,)
        # The agents that the caller started, and those that were started with it.
        owners = {self._owner, *([sender.record.owner] if sender else [])}
        running = self.agents.running.values()
        within_reach = [one for one in running if one.record.owner in owners and one is not sender]
        found = [one for one in within_reach if to in (EVERYBODY, one.record.name, one.record.handle)]
        if not found:
            raise await self._unreachable(to, within_reach)
        for agent in found:
            agent.deliver(text)
        return tuple(map(_name, found))

    async def create(self, name: str, members: Sequence[AgentTask]) -> Team:
        """Start agents in the background; all or none. Raises: as `run`."""
        names = [member.name for member in members]
        if twice := next((one for one in names if names.count(one) > 1), None):
            raise Conflict(f"Two members are named {twice}. Give each a name of its own.")
        if any(team.name == name for team in self._teams()):
            raise Conflict(f"There is a team named {name} already. Use another name, or delete it.")
        prepared: list[RunningAgent] = []
        try:
            for member in members:
                others = [one for one in names if one != member.name]
                prompt = member_prompt(member.prompt, team=name, others=others)
                prepared.append(await self._prepared(replace(member, prompt=prompt, team=name), None))
            for agent in prepared:
                self.agents.check_room(agent.record, more=len(prepared) - 1)
        except BaseException:
            for agent in prepared:
                await self.agents.clean_up(agent.record.handle, agent.isolation)
            raise
        # Nothing waits from here on, so that no member sends a message to one that has not started.
        for agent in prepared:
            self.agents.start(agent)
        team = RunningTeam(TEAM_PREFIX + secrets.token_hex(6), name, self._owner, tuple(prepared))
        self.agents.teams[team.id] = team
        return team.state()

    async def delete(self, team: str) -> Team:
        """Stop the members, by the id or name of their team, and all that they started."""
        found = self._team(team)
        del self.agents.teams[found.id]
        async with anyio.create_task_group() as tasks:
            for agent in found.agents:
                tasks.start_soon(agent.stop)
        return found.state()

    def _team(self, team: str) -> RunningTeam:
        """The team with this id or name. Raises: NotFound."""
        found = next((one for one in self._teams() if team in (one.id, one.name)), None)
        if found is None:
            raise NotFound("There is no such team; it was never created here, or it is gone already.")
        return found

    def _teams(self) -> list[RunningTeam]:
        return [team for team in self.agents.teams.values() if team.owner == self._owner]

    async def _unreachable(self, to: str, within_reach: Sequence[RunningAgent]) -> ToolError:
        if to.startswith(PREFIX):
            try:
                return ended_error(await self.agents.store.find(to, self._owner))
            except NotFound as error:
                return error
        names = ", ".join(map(_name, within_reach)) or "nobody"
        return NotFound(
            f"No running agent within reach is named {visible(to[:_SHOWN])}. There is: {names}. One that has "
            "ended can be resumed with Agent."
        )

    def _running(self, handle: str) -> RunningAgent | None:
        agent = self.agents.running.get(handle)
        return agent if agent is not None and agent.record.owner == self._owner else None

    async def _state(self, handle: str) -> AgentState:
        agent = self._running(handle)
        if agent is not None:
            return agent.state()
        return await with_worktree(self.agents.context, await self.agents.store.find(handle, self._owner))

    @property
    def _is_borrowed(self) -> bool:
        """Whether the model is the client's own, which answers until the call ends."""
        return self.agents.context.model() is None

    def _seconds_to_answer(self) -> float:
        if self._is_borrowed:
            return math.inf
        return longest_wait(
            self.request.scope.seconds_to_answer, self.agents.context.agent_limits.foreground_seconds
        )

    async def _prepared(self, task: AgentTask, report: Report | None) -> RunningAgent:
        agents, calls = self.agents, self.request.calls
        if calls.rights.depth >= MAX_DEPTH:
            raise Denied(
                f"Agents may start each other to a depth of {MAX_DEPTH}, and this one is at that depth. Do "
                "the work yourself."
            )
        model = agents.context.model() or self.request.user.caller.sampling()
        # The dispatcher has refused calls of tools that need a model where there is none.
        assert model is not None
        if task.background and self._is_borrowed:
            raise Unavailable(
                "An agent in the background needs a model that the operator of this server configured; the "
                "client's own model answers only while its call runs. Leave run_in_background out."
            )
        record, conversation = await self._continued(task) if task.resume else self._new(task)
        kind = await _type_of(record.type, self.request.workspace)
        preferred = await _preferences(self.request)
        model_name, notes = _model_for(task, kind, preferred.get("model", ""), agents.context.model_names)
        notes = [*without_worktree(record.notes), *notes, *notes_on(calls, kind)]
        record = replace(record, notes=tuple(dict.fromkeys(notes)))
        stored = len(conversation.messages)
        conversation.add(UserText(task.prompt))
        parent = agents.running.get(self._owner)
        # An agent that waited for an agent that waits for its place would wait forever.
        waits = task.background or parent is None
        agents.check_room(record, waits=waits)
        handle, limits = record.handle, agents.context.agent_limits
        isolation = await isolated(agents.context, self.request, handle, task, kind)
        roots = self.request.workspace.roots if isolation is None else (isolation.path,)
        if kind.joins_session and isolation is None and task.ceiling is Permission.DANGER_FULL_ACCESS:
            agents.context.join_session(handle, self._owner)
        limited = limited_to(calls, kind, source=f"the agent type {kind.name}", advice=_ADVICE)
        if task.ceiling is not Permission.DANGER_FULL_ACCESS:
            limited = limited.limited(
                source="the mode with which this agent was started", advice=_ADVICE, ceiling=task.ceiling
            )
        its_calls = limited.detached(owner=handle, name=f"agent {handle}")
        entries = _visible(its_calls, kind, is_member=bool(task.team))
        facts = agents.context.facts
        agent = RunningAgent(
            record=record,
            conversation=conversation,
            stored=stored,
            model=model,
            model_name=model_name,
            calls=its_calls,
            entries=entries,
            system=system_prompt(kind, name=record.name, roots=roots, language=preferred.get("language", "")),
            briefing=partial(briefing, self.request, its_calls, entries, roots, facts),
            seconds=limits.seconds,
            spending=Spending(limits, task.max_turns, parent.spending if parent else None),
            agents=agents,
            isolation=isolation,
            report=report,
            histories=self.request.host.histories,
            roots=roots,
        )
        try:
            # Others may have started while the worktree was created.
            agents.check_room(record, waits=waits)
        except ToolError:
            await agents.clean_up(handle, isolation)
            raise
        return agent

    def _new(self, task: AgentTask) -> tuple[AgentRecord, Conversation]:
        record = AgentRecord(
            handle=PREFIX + secrets.token_hex(6),
            owner=self._owner,
            type=canonical_type(task.type),
            name=task.name,
            description=task.description,
        )
        return record, Conversation()

    async def _continued(self, task: AgentTask) -> tuple[AgentRecord, Conversation]:
        """The agent to resume."""
        store = self.agents.store
        if self._running(task.resume) is not None:
            raise Conflict(f"{task.resume} is running. TaskOutput waits for its end, and TaskStop ends it.")
        record = await store.find(task.resume, self._owner)
        if record.status == "running":
            raise Conflict(f"{task.resume} runs in another server of this workspace. Wait for its end.")
        if task.type and canonical_type(task.type) != record.type:
            raise InvalidInput(f"{task.resume} has the type {record.type}; leave subagent_type out.")
        if task.name and task.name != record.name:
            raise InvalidInput(f"{task.resume} keeps its name; leave name out.")
        if why := self.request.scope.refuses(record.type):
            raise Denied(why)
        record = replace(record, status="running", detail="", notes=())
        return record, Conversation(await store.messages(task.resume))


@dataclass(frozen=True)
class RunningTeam:
    """A team, until it is deleted or its owner leaves."""

    id: str
    name: str
    owner: str
    agents: tuple[RunningAgent, ...]

    def state(self) -> Team:
        return Team(id=self.id, name=self.name, members=tuple(agent.state() for agent in self.agents))


def _name(agent: RunningAgent | None) -> str:
    """What others call an agent; None is the client."""
    return LEADER if agent is None else agent.record.name or agent.record.handle


async def _type_of(name: str, workspace: Workspace) -> AgentType:
    """The type with this name."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = await to_thread.run_sync(custom_types, workspace, abandon_on_cancel=True)
    kind = next((one for one in found.types if one.name == name), None)
    if kind is None:
        skipped = "".join(f" Not used: {why}" for why in found.skipped[:_SKIPPED])
        raise InvalidInput(
            f"There is no agent type {visible(name[:_SHOWN])}. Choose from: {choices(found.types)}.{skipped}"
        )
    return kind


async def _preferences(request: ServiceRequest) -> Mapping[str, str]:
    """What Config stored; an agent starts without what cannot be read."""
    provide = request.host.providers[Capability.PREFERENCES]
    stored = provide(replace(request, capability=Capability.PREFERENCES))
    assert isinstance(stored, StoredPreferences)
    try:
        return await stored.kept()
    except ToolError:
        return {}


def _model_for(
    task: AgentTask, kind: AgentType, preferred: str, names: Sequence[str]
) -> tuple[str, list[str]]:
    """The model to ask for, and a note if it is another than the type or Config asks for. The client's own
    model gets the name as a hint, and the name in a call has to be right. `names` has the types for which the
    operator chose a model too."""
    asked = task.model or kind.model or (preferred if kind.name not in names else "")
    if not asked or not names:
        return asked, []
    if found := configured_model(asked, names):
        return found, []
    if task.model:
        return asked, []
    who = "its type" if kind.model else "Config"
    return "", [f"{who} asks for the model {visible(asked)}, which is not configured; it used another"]


_NOT_FOR_AGENTS = {
    *(Capability.ASK, Capability.TELL, Capability.PLAN, Capability.PREFERENCES, Capability.CATALOGUE),
    *(Capability.CRON, Capability.SCHEDULES),
}
"""Agents ask nobody, do not plan for the user, and leave nothing behind that runs later."""

_SELDOM_USED = {"calculator", "current_datetime", "StructuredOutput", "RunTaskPacket", "save_skill"}
"""Every turn of an agent would hold their descriptions."""


def _visible(calls: NestedCalls, kind: AgentType, *, is_member: bool) -> tuple[Entry, ...]:
    """The tools that the model of an agent sees. A file that lists tools decides on them itself."""
    every = calls.entries()
    if kind.name not in BUILT_IN and kind.tools is not None:
        return every
    # Tools that are not listed are found with others; agents need none of the deferred ones.
    server = calls.dispatcher
    registry = server.registry
    finds = bool(registry.foreign.unlisted) or any(
        not registry.entries[name].spec.deferred for name in server.unlisted
    )

    useless = {*_NOT_FOR_AGENTS, *([Capability.TEAMS] if is_member else [])}
    useful: list[Entry] = []
    for entry in every:
        spec = entry.spec
        if spec.forwards or Capability.CATALOGUE in spec.needs:
            useful += [entry] * finds
        elif spec.name not in _SELDOM_USED and spec.needs.isdisjoint(useless):
            useful.append(entry)
    return tuple(useful)


def _job(state: AgentState, query: JobQuery) -> JobState:
    """An agent as a background job. It has no output before its end, so that offsets stay valid."""
    is_running = state.status == "running"
    result = b"" if is_running else result_text(state).encode(errors="replace")
    start = min(query.start, len(result))
    text, used = decode_page(result[start : start + query.limit], last=start + query.limit >= len(result))
    said = head_bytes(state.text, _SO_FAR)
    return JobState(
        handle=state.handle,
        text=text,
        start=start,
        next_offset=start + used,
        total=len(result),
        running=is_running,
        reason="running" if is_running else "stopped",
        seconds=state.seconds,
        status=f"{ending(state)}; {spent(state)}",
        notes=(*state.notes, *([f"it said last: {said}"] if said else [])) if is_running else (),
    )
