"""Runs the job of a schedule through the dispatcher, with at most the rights under which it was created."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from mcp_toolserver.capabilities.cron import Job, JobKind, runs_of
from mcp_toolserver.capabilities.processes import Command, JobState
from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.nested_calls import NestedCalls, calls_without_client
from mcp_toolserver.stores.cron import Outcome, StoredSchedule
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
    result = await calls.call(_TOOLS["prompt"], arguments)
    return Outcome(succeeded=result.error is None, output=result.text)


def _text(state: JobState) -> str:
    """The output without the path of the whole, which is removed after the run."""
    text = state.text
    if state.omitted:
        text = f"{lines(text)}[{state.omitted} bytes are left out]\n{state.tail}"
    return command_text(replace(state, text=text, omitted=0))
