"""The schedules of one caller, and their jobs, which run through the dispatcher with at most the rights under
which they were created.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anyio import to_thread
from pydantic import JsonValue

from mcp_toolserver.capabilities.cron import (
    Job,
    JobKind,
    NewSchedule,
    Schedule,
    ScheduledRun,
    owner_of,
    runs_of,
)
from mcp_toolserver.capabilities.processes import Command, JobState
from mcp_toolserver.errors import InvalidInput, ToolError, Unavailable
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.nested_calls import NestedCalls, calls_without_client
from mcp_toolserver.runtime.clock import find_zone, machine_zone
from mcp_toolserver.runtime.cron.scheduler import plan
from mcp_toolserver.stores.cron import PREFIX, Outcome, StoredSchedule, StoredSchedules
from mcp_toolserver.text.cron import next_moment
from mcp_toolserver.text.shell.command_output import command_text, lines
from mcp_toolserver.tool_spec import Output, Runtime
from mcp_toolserver.tools.shell.bash import Bash

COMMAND_SECONDS = 600
"""Time of a command."""

_LARGEST = 60_000
"""Bytes of output that the dispatcher passes on; `stores/cron.py` keeps fewer."""

_RECORDED = 12
"""Characters of the handle in the audit log: enough to know the schedule, not enough to use it."""

_TOOLS: Mapping[JobKind, str] = {"command": "bash", "prompt": "Agent"}

_INSTEAD: Mapping[JobKind, str] = {
    "command": "The operator can change the toolsets or the sandbox of this server.",
    "prompt": "Give a command, or ask the operator to configure a model in [agent] of the config file.",
}


@dataclass(frozen=True, kw_only=True)
class OwnerSchedules:
    """The schedules of the caller; they outlive the server. `now` is the time of the call."""

    store: StoredSchedules
    calls: NestedCalls
    """What the caller may do, and at most what the jobs of its schedules may do."""

    @property
    def owner(self) -> str:
        """Whose schedules these are."""
        return owner_of(self.calls.dispatcher.user)

    async def create(self, wanted: NewSchedule, now: datetime) -> Schedule:
        """Store a schedule, whose job gets at most the rights of this call.

        Raises:
            InvalidInput: no such time zone, or the caller has too many schedules.
            Unavailable: there is no tool for the job here, or the state cannot be written.
            Conflict: another server has been changing this state for seconds.
        """
        zone = wanted.zone or await to_thread.run_sync(machine_zone)
        found = await to_thread.run_sync(find_zone, zone)
        # No client is there when it runs.
        check_available(
            calls_without_client(self.calls.dispatcher, self.calls.rights, owner="", name=""),
            wanted.job.kind,
        )
        made = StoredSchedule(
            handle=PREFIX + secrets.token_hex(16),
            owner=self.owner,
            fields=wanted.fields,
            zone=zone,
            job=wanted.job,
            description=wanted.description,
            catch_up=wanted.catch_up,
            rights=stored_rights.to_json(self.calls.rights),
            created=int(now.timestamp()),
            next=await to_thread.run_sync(next_moment, wanted.fields, found, now.timestamp()),
        )
        await self.store.create(made)
        return shown(made, now.timestamp())

    async def all(self, now: datetime) -> tuple[Schedule, ...]:
        """Return all of the caller, the oldest first. Raises: Conflict, Unavailable: as for `create`."""
        found = await self.store.all(self.owner)
        return await to_thread.run_sync(lambda: tuple(shown(one, now.timestamp()) for one in found))

    async def delete(self, handle: str, now: datetime) -> Schedule:
        """Delete a schedule and stop its run; returns what it was.

        Raises:
            NotFound: the caller has no such schedule.
            Conflict, Unavailable: as for `create`.
        """
        return shown(await self.store.delete(handle, self.owner, self.calls.rights), now.timestamp())


def shown(stored: StoredSchedule, now: float) -> Schedule:
    """A schedule with the times that it has missed until now, also those that no server has seen.

    If the machine does not know its time zone any more, it does not run, and its times are in UTC.
    """
    try:
        zone = find_zone(stored.zone)
    except (InvalidInput, Unavailable):
        zone = None
    if zone is not None and stored.next is not None and stored.next <= now:
        claim = plan(stored, now)
        stored = replace(
            stored,
            next=claim.next if claim.due is None else claim.due,
            missed=stored.missed + claim.missed,
            last_missed=claim.last_missed or stored.last_missed,
        )

    def local(moment: int) -> datetime:
        return datetime.fromtimestamp(moment, zone or UTC)

    def local_or_none(moment: int | None) -> datetime | None:
        return None if moment is None else local(moment)

    return Schedule(
        handle=stored.handle,
        fields=stored.fields,
        zone=stored.zone,
        job=stored.job,
        description=stored.description,
        catch_up=stored.catch_up,
        created=local(stored.created),
        next=local_or_none(stored.next),
        missed=stored.missed,
        last_missed=local_or_none(stored.last_missed),
        run_count=stored.run_count,
        runs=tuple(
            ScheduledRun(
                due=local(run.due),
                started=local(run.started),
                ended=local_or_none(run.ended),
                outcome=run.outcome,
                output=run.output,
            )
            for run in stored.runs
        ),
    )


def check_available(calls: NestedCalls, kind: JobKind) -> None:
    """Raises: Unavailable: `calls` cannot run jobs of this kind."""
    tool = _TOOLS[kind]
    if not any(entry.spec.name == tool for entry in calls.entries()):
        raise Unavailable(
            f"A {kind} runs with the tool {tool}, which is not available here. {_INSTEAD[kind]}"
        )


async def reaches(dispatcher: Dispatcher, schedule: StoredSchedule) -> bool:
    """Whether the client of this server has any folder of `schedule`; else the server of another client, or
    one without a client, has to run it."""
    try:
        rights = stored_rights.from_json(schedule.rights, dispatcher.rules)
        host, caller = dispatcher.host, calls_without_client(dispatcher, rights, owner="", name="").caller
        lists = await caller.roots()
        return bool(await host.lookups.run("", lambda: host.restricted_to(*lists).workspace.roots))
    except ToolError:
        # Its run says why.
        return True


async def run_job(dispatcher: Dispatcher, schedule: StoredSchedule, forget: Callable[[str], None]) -> Outcome:
    """Run the job of `schedule`; `forget` ends everything that it started.

    Raises:
        Unavailable: its rights are damaged, or its tool is not available.
    """
    rights = stored_rights.from_json(schedule.rights, dispatcher.rules)
    owner = f"run of {schedule.handle} {secrets.token_hex(8)}"
    dispatcher.narrowings.adopt(owner, runs_of(schedule.owner))
    name = f"schedule {schedule.handle[:_RECORDED]}"
    calls = calls_without_client(dispatcher, rights, owner=owner, name=name)
    check_available(calls, schedule.job.kind)
    try:
        return await (_command if schedule.job.kind == "command" else _prompt)(calls, schedule.job)
    finally:
        forget(owner)


async def _command(calls: NestedCalls, job: Job) -> Outcome:
    states: list[JobState] = []

    # The text of the tool does not tell programs how the command ended.
    async def run(args: Bash, rt: Runtime) -> Output:
        command = Command(script=args.command, cwd=args.cwd, timeout=args.timeout / 1000)
        states.append(await rt.processes.run(command, rt.report))
        return Output(_text(states[0]))

    override = OutputOverride(run=run, output_bytes=_LARGEST)
    arguments: dict[str, JsonValue] = {"command": job.text, "timeout": 1000 * COMMAND_SECONDS}
    result = await calls.call(_TOOLS["command"], arguments, output_override=override)
    succeeded = result.error is None and all(state.exit_status == 0 for state in states)
    return Outcome(succeeded=succeeded, output=result.text)


async def _prompt(calls: NestedCalls, job: Job) -> Outcome:
    arguments: dict[str, JsonValue] = {"description": "Scheduled job", "prompt": job.text}
    # Few schedules have a prompt.
    from mcp_toolserver.runtime.agents.deferred import DEFERRED

    result = await calls.call(_TOOLS["prompt"], arguments, output_override=DEFERRED)
    return Outcome(succeeded=result.error is None, output=result.text)


def _text(state: JobState) -> str:
    """The output without the path of the whole, which is removed after the run."""
    text = state.text
    if state.omitted:
        text = f"{lines(text)}[{state.omitted} bytes are left out]\n{state.tail}"
    return command_text(replace(state, text=text, omitted=0))
