"""Starts the tasks of the board whose dependencies are completed, and the runs of schedules, and records how
they end.

A command runs as a background command, a prompt as an agent. Each makes its calls under an owner of its own,
the id of the task, so that the end of the task ends everything that it started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.cron import owner_of, runs_of
from mcp_toolserver.capabilities.processes import Command, JobQuery, JobState
from mcp_toolserver.capabilities.tasks import Runs
from mcp_toolserver.errors import ToolError, Unavailable, UnknownTool
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.call import OutputOverride, Result
from mcp_toolserver.pipeline.narrowings import PLAN_MODE
from mcp_toolserver.runtime.background import ended
from mcp_toolserver.stores.agents import StoredAgents
from mcp_toolserver.stores.board import LEFT, Claim, Outcome, StoredBoard
from mcp_toolserver.text.agents.types import ending as ending_of
from mcp_toolserver.text.shell.command_output import ending
from mcp_toolserver.tool_spec import Output, Runtime

if TYPE_CHECKING:
    from pydantic import JsonValue

    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.runtime.processes.commands import CallCommands
    from mcp_toolserver.runtime.providers import ProviderContext

log = logging.getLogger(__name__)

COMMAND_TOOL = "bash"
AGENT_TOOL = "Agent"
TOOLS: Mapping[Runs, str] = {"command": COMMAND_TOOL, "prompt": AGENT_TOOL}

RECORDED = 12
"""Characters of the handle of a schedule in the audit log: enough to know it, not enough to use it."""

RUNNING = 8
"""Tasks of one server at once; the others wait in the order in which they were created."""

RUNS = 4
"""Runs of schedules of one server at once."""

RUN_SECONDS = 3_600.0
"""Time of a run, and of the command of one:"""
COMMAND_SECONDS = 600.0

POLL_SECONDS = 2.0
"""Time after which a server with waiting tasks looks at the board again, which other servers change too."""

_FINISH_ATTEMPTS = 5
"""How often to try to store the end of a task while other servers keep the database."""


@dataclass(eq=False)
class Run:
    """A task that runs."""

    claim: Claim
    calls: NestedCalls
    running: asyncio.Task[None] = field(init=False)
    handle: str = ""
    """Of its command, once that has started."""
    stopped: str = ""
    """Why it was stopped; empty if it was not."""
    progress: str = ""
    """What its agent reported last."""
    began: float = field(default_factory=time.monotonic)


class TaskRunner:
    """The task board, and the tasks of it that run in this server."""

    def __init__(self, context: ProviderContext) -> None:
        self.context = context
        self.board = StoredBoard(
            context.database, changed=self._changed, removed=partial(context.changes.removed, "task")
        )
        self._agents = StoredAgents(context.database)
        self._calls: dict[str, NestedCalls] = {}
        """The calls of the tasks of this server that have not started."""
        self.runs: dict[str, Run] = {}
        self.claiming = anyio.Lock()
        """Held while tasks are claimed and until they are in `runs`."""
        self.owners: set[str] = set()
        """Whose tasks run here: those who created tasks, and the owners of schedules."""
        self.adopts = False
        """Whether it takes over tasks that ended servers left to the user of this machine."""
        self.announce: Callable[[str], None] = lambda _: None
        """Gets a line at the start and at the end of each run of a schedule."""
        self.news = anyio.Event()
        """Set at the next change of the board."""
        self._is_looking = False

    def prepare(self, task: str, calls: NestedCalls) -> NestedCalls:
        """The calls of the new task `task`, which are made when it runs."""
        self._calls[task] = calls.detached(owner=task, name=f"task {task}")
        return self._calls[task]

    def drop(self, task: str) -> None:
        """Forget the calls of a task that will not run."""
        if self._calls.pop(task, None) is not None:
            self.context.changes.forget(task)

    def forget(self, owner: str) -> None:
        """Cancel the tasks of `owner`, who will not return, unless that is the user of this machine."""
        if owner != LOCAL and owner in self.owners:
            self.owners.discard(owner)
            self.context.background.start(partial(self._leave, owner), name="the end of a client's tasks")

    async def aclose(self) -> None:
        """Store the end of all tasks of this server."""
        try:
            await self.board.aclose(self.owners)
        except ToolError as error:
            log.warning("the end of tasks could not be stored: %s", error)

    def _changed(self, owner: str, task: str) -> None:
        if owner == runs_of(owner_of(self.context.user)):
            self.context.changes.changed("schedules")
        else:
            with self.context.changes.on_behalf_of(owner):
                self.context.changes.changed("task", task)
        self._wake()

    def _wake(self) -> None:
        """Wake whoever waits for a change of the board."""
        news, self.news = self.news, anyio.Event()
        news.set()

    def look(self) -> None:
        """Start the tasks that are ready, now and whenever more become ready."""
        self._wake()
        if not self._is_looking:
            self._is_looking = True
            self.context.background.start(self._look, name="the start of tasks")

    async def stop(self, run: Run, why: str) -> None:
        """Stop a task, and wait until it has ended."""
        run.stopped = run.stopped or why
        if run.handle:
            await self._commands_of(run).stop(run.handle)
        else:
            run.running.cancel()
        await ended(run.running)

    async def _leave(self, owner: str) -> None:
        for task in await self.board.leave(owner):
            self.drop(task)
        for run in [run for run in self.runs.values() if run.claim.owner == owner]:
            await self.stop(run, LEFT)
        self.look()

    async def output(self, run: Run, query: JobQuery, wait: float) -> JobState | None:
        """The output of the command of a task, after at most `wait` seconds; None if it has none."""
        if not run.handle:
            return None
        live = await self._commands_of(run).output(replace(query, handle=run.handle, wait=wait))
        # It runs until its end is stored.
        return replace(live, handle=query.handle, running=True, reason="running")

    async def _look(self) -> None:
        try:
            while True:
                news = self.news
                try:
                    waits = await self._start_ready()
                    await self._stop_deleted()
                except ToolError as error:
                    log.warning("the task board could not be read: %s", error)
                    waits = True
                if not waits and not self.running(scheduled=True) and not news.is_set():
                    return
                await wait_for(news, POLL_SECONDS)
        finally:
            self._is_looking = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing that could run waits."""
        return not self.runs and not self._is_looking

    def running(self, *, scheduled: bool) -> list[Run]:
        """The tasks, or the runs of schedules, that run now."""
        return [run for run in self.runs.values() if bool(run.claim.schedule) == scheduled]

    async def _start_ready(self) -> bool:
        """Start what is ready; returns whether anything still waits."""
        async with self.claiming:
            left = await self.board.left(LOCAL) if self.adopts else ()
            mine = [one.id for one in left if not await self.obstacle(one.rights, TOOLS[one.runs])]
            if mine:
                self.owners.add(LOCAL)
            places = (
                RUNNING - len(self.running(scheduled=False)),
                RUNS - len(self.running(scheduled=True)),
            )
            claims, waits = await self.board.claim(places, self.owners, adopts=mine, is_held=self._is_held)
            for claim in claims:
                self._start(claim)
        return waits

    async def _stop_deleted(self) -> None:
        """Stop the runs of schedules that were deleted, maybe by another server."""
        if runs := self.running(scheduled=True):
            existing = await self.board.existing([run.claim.id for run in runs])
            for run in runs:
                if run.claim.id not in existing:
                    await self.stop(run, "Its schedule was deleted.")

    async def obstacle(self, rights: str, tool: str) -> str:
        """Why this server cannot run work that needs `tool` and was stored with `rights`; empty if it can,
        also where only its run can say what is wrong."""
        wanted, mode = stored_rights.wanted_mode(rights), self.context.facts.mode
        if mode < wanted:
            return f"it needs the permission mode {wanted.flag}; this server has {mode.flag}"
        try:
            calls = self.context.calls_of(rights, "", "")
            if why := calls.lacks(tool):
                return why
            host, lists = calls.dispatcher.host, await calls.caller.roots()
            found = await host.lookups.run("", lambda: host.restricted_to(*lists).workspace.roots)
        except ToolError:
            return ""
        return "" if found else "the client of this server has none of its folders"

    def _start(self, claim: Claim) -> None:
        try:
            calls = self._calls.pop(claim.id, None) or self._calls_of(claim)
        except ToolError as error:
            outcome = Outcome(status="failed", reason=str(error))
            self.context.background.start(lambda: self._finish(claim, outcome), name=f"task {claim.id}")
            return
        if claim.schedule:
            self.announce(f"{claim.schedule} starts")
        self.runs[claim.id] = run = Run(claim=claim, calls=calls)
        run.running = self.context.background.start(lambda: self._run(run), name=f"task {claim.id}")

    def _calls_of(self, claim: Claim) -> NestedCalls:
        """The calls of what was stored. What is in force for its owner here applies too."""
        self.context.narrowings.adopt(claim.id, claim.owner)
        name = f"schedule {claim.schedule[:RECORDED]}" if claim.schedule else f"task {claim.id}"
        return self.context.calls_of(claim.rights, claim.id, name)

    async def _run(self, run: Run) -> None:
        outcome: Outcome | None = Outcome(status="failed", reason="It failed inside the server.")
        try:
            with anyio.move_on_after(RUN_SECONDS if run.claim.schedule else None) as scope:
                outcome = await (self._command(run) if run.claim.command else self._prompt(run))
            if scope.cancelled_caught:
                outcome = Outcome(status="failed", reason=f"It was stopped after {RUN_SECONDS:g} s.")
        except anyio.get_cancelled_exc_class():
            # If the server ends, the store records that for all tasks at once.
            outcome = Outcome(status="cancelled", reason=run.stopped) if run.stopped else None
            raise
        except ToolError as error:
            outcome = Outcome(status="failed", reason=str(error))
        finally:
            if outcome is not None:
                with anyio.CancelScope(shield=True):
                    await self._finish(run.claim, outcome)

    async def _finish(self, claim: Claim, outcome: Outcome) -> None:
        for attempt in range(_FINISH_ATTEMPTS):
            try:
                # Whoever sees the task can go on with its agent.
                if claim.prompt:
                    to = LOCAL if claim.owner == runs_of(LOCAL) else claim.owner
                    await self._agents.give(claim.id, to)
                await self.board.finish(claim, outcome)
            except ToolError as error:
                log.warning("the end of %s could not be stored (attempt %d): %s", claim.id, attempt, error)
            else:
                break
        self.runs.pop(claim.id, None)
        how, why = outcome.status, f": {outcome.reason}" if outcome.reason else ""
        if claim.schedule:
            how = "succeeded" if how == "completed" else "failed"
            self.announce(f"{claim.schedule} {how}")
        self.context.changes.on_end(claim.owner, f"{claim.schedule or claim.id} ({claim.subject}) {how}{why}")
        self.context.changes.forget(claim.id)
        self.look()

    async def _command(self, run: Run) -> Outcome:
        async def start(args: Any, rt: Runtime) -> Output:
            if self._is_held(run.claim.owner, run.claim.rights):
                raise Unavailable("Plan mode has begun.")
            timeout = COMMAND_SECONDS if run.claim.schedule else None
            command = Command(script=args.command, cwd=args.cwd, timeout=timeout, background=True)
            run.handle = (await rt.processes.run(command, rt.report)).handle
            self._wake()
            return Output("started")

        arguments: dict[str, JsonValue] = {"command": run.claim.command, "run_in_background": True}
        started = await self._called(
            run, COMMAND_TOOL, arguments, OutputOverride(run=start, output_bytes=100)
        )
        if started.error is not None:
            return Outcome(status="failed", reason=started.text)
        return await self._ended(run)

    async def _ended(self, run: Run) -> Outcome:
        """How its command ended."""
        commands, most = self._commands_of(run), self.board.limits.output
        state = await commands.output(JobQuery(handle=run.handle, limit=0, wait=float("inf")))
        start = max(state.total - most, 0)
        state = await commands.output(JobQuery(handle=run.handle, offset=start, limit=most))
        status = "completed" if state.reason == "exited" and state.exit_status == 0 else "failed"
        reason = "" if status == "completed" else f"{ending(state)}."
        if run.stopped:
            status, reason = "cancelled", run.stopped
        return Outcome(status=status, reason=reason, output=state.text.encode(), output_start=state.start)

    async def _prompt(self, run: Run) -> Outcome:
        async def report(message: str) -> None:
            run.progress = message

        claim = run.claim
        # The messages came before it started.
        prompt = "\n\n".join((claim.prompt, *(message.text for message in claim.messages)))
        arguments: dict[str, JsonValue] = {"description": claim.subject, "prompt": prompt}
        run.calls = run.calls.reporting(report)
        # Few tasks have a prompt.
        from mcp_toolserver.runtime.agents.deferred import Deferred

        deferred = Deferred()
        result = await self._called(run, AGENT_TOOL, arguments, deferred.override)
        if (state := deferred.state) is None:
            return Outcome(status="failed", reason=result.text)
        status = "completed" if state.status == "finished" else "failed"
        reason = "" if status == "completed" else f"Its agent {ending_of(state)}."
        return Outcome(status=status, reason=reason, output=result.text.encode())

    async def _called(
        self, run: Run, tool: str, arguments: dict[str, JsonValue], override: OutputOverride | None = None
    ) -> Result:
        whose = run.claim.owner, run.claim.rights
        try:
            while True:
                # Plan mode may begin between the claim and the check of rights.
                while self._is_held(*whose):
                    await wait_for(self.news, POLL_SECONDS)
                result = await run.calls.call(tool, arguments, output_override=override)
                if result.error is None or tool == AGENT_TOOL or not self._is_held(*whose):
                    return result
        except UnknownTool:
            return Result(text=f"This server has no tool {tool}.", error=ToolError.kind)

    def _is_held(self, owner: str, rights: str) -> bool:
        """Whether a task waits for the end of plan mode; one created in it only reads, and runs."""
        return self.context.narrowings.holds(owner, PLAN_MODE) and f'"source":"{PLAN_MODE}"' not in rights

    def _commands_of(self, run: Run) -> CallCommands:
        return self.context.commands.for_owner(run.claim.id)


async def wait_for(news: anyio.Event, seconds: float) -> None:
    """Wait for a change of the board, at most `seconds`, and never longer than `POLL_SECONDS`."""
    with anyio.move_on_after(min(seconds, POLL_SECONDS)):
        await news.wait()
