"""The one way to run a tool.

    find → validate → decide → hooks → ask → grant → run → truncate → envelope

A call that a hook changes goes through the stages from validate on again. `decide` includes the check of
dangerous commands; `run` waits for a slot, then has a deadline. A trial ends before `run`, asks nobody and
runs no hook; a dry run asks nobody and ends there with an error.

Only cancellation and `UnknownTool` escape `Dispatcher.call`; every other failure is a `Result` whose text
says what was wrong and what to do next. Every call produces exactly one record; if the
recorder fails, calls are rejected. `Dispatcher.shown` escapes every text that leaves the server.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import filterfalse
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import LOCAL, SECONDS_TO_ANSWER, Room, Scope, ToolCard
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    SandboxUnavailable,
    TimedOut,
    ToolError,
    Unavailable,
    UnknownTool,
)
from mcp_toolserver.pipeline.approvals import Approve, Inquiry, ask_client, change_of
from mcp_toolserver.pipeline.call import (
    DEFAULT_OPTIONS,
    Caller,
    CallOptions,
    InputRequired,
    Result,
    Rights,
    User,
    fit,
)
from mcp_toolserver.pipeline.call_record import CallObserver, CallRecord, Recorder, begin, end, new_id
from mcp_toolserver.pipeline.fair_semaphore import FairSemaphore, Overdue
from mcp_toolserver.pipeline.hooks import Arguments, Hook
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.pipeline.nested_calls import NestedCalls
from mcp_toolserver.pipeline.registry import Entry, Registry
from mcp_toolserver.pipeline.validation import (
    about,
    argument_texts,
    as_sent,
    checked,
    ignored,
    respelt,
    subjects_of,
)
from mcp_toolserver.policy.dangerous_commands import objection
from mcp_toolserver.policy.rules import FOREIGN, Narrowing, Policy, Request, Rule, Verdict
from mcp_toolserver.text.lines.escape_invisible import visible, visible_values
from mcp_toolserver.text.shell.command_output import noted
from mcp_toolserver.tool_spec import Args, Forward, Output, Profile, ResourceLink, Runtime, ToolSpec

if TYPE_CHECKING:
    from mcp_toolserver.runtime.host_services import HostServices

log = logging.getLogger(__name__)

PARALLEL_READS = 12
"""Read-only calls that run at the same time; more wait for a slot."""

READS_OF_ONE = 10
"""Read-only calls of one client that run at the same time."""

NO_MODEL = (
    "Agent spawner not available. {} needs a language model, and there is none. The operator of this server "
    "can configure one in [agent] of the config file; a client can offer its own (sampling with tools). Do "
    "the work yourself."
)

NO_OWN_MODEL = (
    "{} starts agents in the background, and the client's model answers only while its call waits. The "
    "operator of this server can configure a model in [agent] of the config file. Use Agent."
)


MAX_CHOICES = 1_450
"""Characters of what a workspace adds to the description of a tool."""

MAX_CHOICE = 200
"""Characters of one line of it."""

Choices = Callable[["HostServices"], Sequence[tuple[str, str]]]
"""Finds what a workspace has for calls to name, such as types of agents: names, and descriptions in the words
of its files, which may be hostile. It blocks."""

_NO_SLOT = nullcontext()
"""Stands for the slot of a call that needs none."""


_Found = tuple[Entry, Mapping[str, JsonValue], str]
"""The tool that a call runs, its arguments under the tool's own names and in its own units, and the
forwarding tool that it came through; empty without one."""


@dataclass(frozen=True, kw_only=True)
class _CallContext:
    """A validated call, with the policy and host restricted by its client and what is in force for it."""

    spec: ToolSpec
    args: Args
    """With canonical paths."""
    request: Request
    policy: Policy
    host: HostServices
    rights: Rights

    def lowered(self, narrowings: Sequence[Narrowing]) -> _CallContext:
        """The same with fewer rights."""
        lowest, host = min(one.ceiling for one in narrowings), self.host
        if lowest < self.policy.ceiling:
            source = next(one.source for one in narrowings if one.ceiling is lowest)
            host = host.lowered(lowest, source)
        request = replace(self.request, level=_level(self.spec, host))
        return replace(self, request=request, policy=self.policy.narrowed(narrowings), host=host)


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Places for calls that run at the same time."""

    reads: FairSemaphore = field(default_factory=lambda: FairSemaphore(PARALLEL_READS, READS_OF_ONE))
    serial: FairSemaphore = field(default_factory=lambda: FairSemaphore(1, 1))
    """For calls of tools that are `serial`."""


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """Runs tools for callers under one policy."""

    registry: Registry
    offered: frozenset[str]
    """Names of the tools that the operator switched on."""
    policy: Policy
    host: HostServices
    unlisted: frozenset[str] = frozenset()
    """Offered tools that are not listed; a client that knows the name can call them."""
    for_resources: frozenset[str] = frozenset()
    """Tools that a resource may use although they are not offered: those that no toolset in use has."""
    without_model: frozenset[str] = frozenset()
    """Tools that need a model where the operator configured none: they run only for clients with one."""
    without_own_model: frozenset[str] = frozenset()
    """Those of them that no model of a client can help, because they need it after the call."""
    recorder: Recorder | None = None
    """Records every call."""
    observers: tuple[CallObserver, ...] = ()
    """Get every call that ended, once it is recorded."""
    raw: bool = False
    """Whether to send invisible characters without escaping them."""
    user: str = ""
    """The name whose token all callers have, for the record; empty without named tokens."""
    project: Callable[[Policy], Policy] = lambda policy: policy
    """Adds the rules of projects, as they were last read, to a policy."""
    read_project: Callable[[], None] | None = None
    """Reads them where they changed; it blocks."""
    narrowings: Narrowings = field(default_factory=Narrowings)
    """What takes rights from the calls of each owner."""
    approve: Approve = ask_client
    """Gets an answer where the policy asks."""
    hooks: tuple[Hook, ...] = ()
    is_dry_run: bool = False
    """Whether calls are decided and recorded, and none runs."""
    requirements: Mapping[str, Narrowing] = field(default_factory=dict[str, Narrowing])
    """What takes rights from every call of a tool."""
    rules: Callable[[Sequence[str]], tuple[Rule, ...]] = lambda _: ()
    """Parses rules; omits those that cannot be parsed."""
    on_behalf_of: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    """Lists what is made inside the context to an owner; see `ChangeEvents.on_behalf_of`."""
    queue_seconds: float = SECONDS_TO_ANSWER
    """How long a call may wait for a slot."""
    clients: dict[str, Caller] = field(default_factory=dict[str, Caller])
    """The client on stdio, by its owner `LOCAL`, once it has made a call."""
    slots: Slots = field(default_factory=Slots)
    states: dict[str, dict[str, JsonValue]] = field(default_factory=dict[str, "dict[str, JsonValue]"])
    """By owner; see `ToolContext.state`."""
    choices: Mapping[str, Choices] = field(default_factory=dict[str, "Choices"])
    """By tool."""

    def level(self, entry: Entry) -> Permission:
        """The permission that the tool needs on this host; of a forwarding tool, the highest of its
        targets."""
        if entry.spec.args is entry.spec.unsandboxed_args:
            return Permission.DANGER_FULL_ACCESS
        if not entry.spec.forwards:
            return entry.spec.level(self.host.permissions)
        foreign = min(self.registry.foreign.highest, self.policy.ceiling)
        return max((foreign, *map(self.level, self._targets_of(entry))))

    def reach(self, entry: Entry) -> frozenset[Capability]:
        """The open-world capabilities that the tool, or one that it may call, needs."""
        others = [other.spec for other in self._targets_of(entry)]
        return self.host.open_world & frozenset[Capability]().union(
            entry.spec.needs, *(spec.needs for spec in others)
        )

    def listed(self, *, samples: bool = False) -> tuple[Entry, ...]:
        """The tools that a client sees in the list, by name. `samples` is whether it offers its model."""
        omitted = (
            self.unlisted
            | self.registry.foreign.unlisted
            | (self.without_own_model if samples else self.without_model)
        )
        return tuple([entry for entry in self.available if entry.spec.name not in omitted])

    async def described_choices(self, tools: Collection[str]) -> Mapping[str, str]:
        """By tool a text for the end of its description: what the workspace has for its calls to name, less
        what a rule denies."""
        found: dict[str, str] = {}
        for name in self.choices.keys() & tools:
            spec = self.registry.find(name).spec
            request = Request(tool=name, level=spec.level(self.host.permissions), needs=spec.needs)
            # Without an answer of the file system the list comes without them.
            with suppress(ToolError, OSError):
                every = await self.host.lookups.run(name, partial(self.choices[name], self.host))
                permitted = [
                    (choice, words)
                    for choice, words in every
                    if self.policy.decide(replace(request, subjects=((choice,),))).action != "refuse"
                ]
                if permitted:
                    found[name] = "\n" + described("Files here add, in their own words:", permitted)
        return found

    @property
    def available(self) -> tuple[Entry, ...]:
        """The tools that this server can run: switched on, available here and not above the ceiling. Its own
        ones by name, then those of other servers."""
        return (*self._own, *filter(self._is_available, self.registry.foreign.entries.values()))

    @cached_property
    def _own(self) -> tuple[Entry, ...]:
        return tuple(filter(self._is_available, self.registry.entries.values()))

    def _is_offered(self, tool: str) -> bool:
        return tool in self.offered or tool in self.registry.foreign.entries

    def _is_available(self, entry: Entry) -> bool:
        return (
            self._is_offered(entry.spec.name)
            and self.level(entry) <= self.policy.ceiling
            and entry.spec.needs <= self.host.permissions.keys()
        )

    def entries_for(self, owner: str, narrowings: Sequence[Narrowing]) -> tuple[Entry, ...]:
        """The listed tools that calls of `owner` under `narrowings` can use, by name; a rule with a pattern
        counts as the whole tool."""
        every = (*self.narrowings.of(owner), *narrowings)
        lowest = min((one.ceiling for one in every), default=self.policy.ceiling)
        host = self.host.lowered(lowest, "") if lowest < self.policy.ceiling else self.host
        usable = {entry.spec.name: entry for entry in self.listed(samples=True)}
        for rules in (one.tools for one in every if one.tools is not None):
            named = {name for rule in rules for name in (rule.tool, *rule.tools)}
            usable = usable if "*" in named else {name: usable[name] for name in usable if name in named}
        return tuple(
            [
                entry
                for entry in usable.values()
                if entry.spec.needs <= host.permissions.keys()
                and (entry.spec.forwards or entry.spec.level(host.permissions) <= lowest)
            ]
        )

    def _targets_of(self, entry: Entry) -> list[Entry]:
        """The tools of this server that the tool `entry` may call, besides those of other servers."""
        if not isinstance(entry.spec.run, Forward) or entry.spec.run.only_foreign:
            return []
        others = (entry for entry in self.registry.entries.values() if not entry.spec.forwards)
        return [*filter(self._is_available, others)]

    def _catalogue(self, caller: Caller) -> tuple[ToolCard, ...]:
        omitted = self.without_model if caller.sampling() is None else self.without_own_model
        return tuple(
            ToolCard(
                name=entry.spec.name,
                description=entry.spec.description,
                aliases=entry.other_names,
                toolset=entry.toolset,
                permission=self.level(entry),
                schema=json.dumps(entry.spec.schema, ensure_ascii=False, separators=(",", ":")),
                arguments=entry.spec.argument_names,
                core=entry.spec.profile is Profile.LEAN,
            )
            for entry in self.available
            if entry.spec.name not in omitted
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None,
        caller: Caller,
        options: CallOptions = DEFAULT_OPTIONS,
    ) -> Result:
        """Run one call through all stages.

        Raises:
            UnknownTool: no tool has this name; a protocol error, not a result.
        """
        call = CallRecord(
            name=name,
            session=caller.name,
            user=self.user,
            mode=self.policy.ceiling.flag if self.user else "",
            arguments=arguments or {},
            seconds_to_answer=options.seconds_to_answer,
            room=options.room,
            parent_id=options.parent_id,
            id=options.call_id or new_id(),
        )
        if caller.owner == LOCAL:
            self.clients[LOCAL] = caller
        if (why := await begin(self.recorder, call)) is not None:
            return Result(text=why, error=Unavailable.kind, call_id=call.id)
        started, entry, result = time.perf_counter(), None, Result(text="", error=call.outcome)
        try:
            entry = await self._found_entry(name)
            # The end of the server may record the call before `finally` does.
            call.outcome = "cancelled"
            result = Result(text="", error=call.outcome)
            result = await self._answer(self._found(entry, call), call, caller, options)
        except Exception as error:
            # The one place where a bug becomes an answer.
            if isinstance(error, UnknownTool):
                raise
            result = await self._failure(error, call, caller)
        finally:
            call.duration_ms = (time.perf_counter() - started) * 1000
            call.outcome = result.error or ("pending" if result.pending else "output")
            call.text = result.text
            why = await end(self.recorder, self.observers, call)
        if why is not None:
            result = Result(text=why, error=Unavailable.kind)
        return replace(result, duration_ms=call.duration_ms, call_id=call.id)

    async def _found_entry(self, name: str) -> Entry:
        """The tool of this name; before a call that may be of another server's, or find one, those are asked.

        Raises:
            UnknownTool, NotFound: there is none; the latter says why a server has it no more.
        """
        entry = self.registry.entries.get(name)
        if entry is None or entry.spec.forwards or Capability.CATALOGUE in entry.spec.needs:
            await self.registry.foreign.look()
        try:
            return self.registry.find(name)
        except UnknownTool:
            if name.startswith(FOREIGN):
                raise NotFound(self.registry.foreign.why_missing(name)) from None
            raise

    async def decide(
        self, name: str, arguments: Mapping[str, JsonValue], caller: Caller
    ) -> tuple[CallRecord, str]:
        """Decide on a call by the stages of `call`, without a question, a run or an entry in the audit log.
        Returns how far it would come, and the error before that; empty without one."""
        call = CallRecord(name=name, session=caller.name, arguments=arguments, is_trial=True)
        try:
            found = self._found(self.registry.find(name), call)
            await self._answer(found, call, caller, DEFAULT_OPTIONS)
        except UnknownTool:
            return call, f"no tool is called {name}"
        except ToolError as error:
            return call, str(error)
        return call, ""

    def needs_client_model(self, name: str, arguments: Mapping[str, JsonValue] | None) -> bool:
        """Whether such a call runs only with the client's model. Raises: UnknownTool."""
        spec = self.target(name, arguments)
        return spec is not None and spec.name in self.without_model - self.without_own_model

    def target(self, name: str, arguments: Mapping[str, JsonValue] | None) -> ToolSpec | None:
        """The tool that such a call runs; None if it fails before. Raises: UnknownTool."""
        entry = self.registry.find(name)
        try:
            return self._found(entry, CallRecord(name=name, session="", arguments=arguments or {}))[0].spec
        except Exception:  # noqa: BLE001  the call ends at once with the same error; `call` reports and records it
            return None

    def shown(self, text: str) -> str:
        """Escape the invisible characters of a text for the client, unless the operator turned that off."""
        return text if self.raw else visible(text)

    async def _failure(self, error: Exception, call: CallRecord, caller: Caller) -> Result:
        if isinstance(error, InputRequired):
            return Result(text="", pending=True)
        notes = call.hooked.notes
        if isinstance(error, ToolError):
            host, output = self.host.owned_by(caller.owner), Output(str(error))
            return replace(await self._enveloped(output, notes, call.room, host), error=error.kind)
        # The text of a bug stays in the log.
        log.error("%s failed; reference %s", call.tool, call.id, exc_info=error)
        text = f"{call.tool} failed inside the server. The server's log has the details under {call.id}."
        return Result(text=self.shown(noted(text, notes)), error="internal")

    async def _answer(self, found: _Found, call: CallRecord, caller: Caller, options: CallOptions) -> Result:
        """The stages after `find`."""
        entry, arguments, through = found
        spec, override = entry.spec, options.output_override
        call.tool, call.needs, call.verdict = spec.name, spec.needs, "invalid"
        call.permission = spec.level(self.host.permissions)
        args = checked(entry, arguments)
        call.verdict, call.about = "undecided", about(spec, args)
        context = await self._located(found, args, call, caller, options)
        request, host = context.request, context.host

        if override is None or spec.name not in self.for_resources:
            self._check_offered(request, call)
        verdict = self._decided(context, call)

        updated = await self._hooked(context, call, arguments) if self.hooks else None
        if updated is not None:
            again = entry, self.registry.translate(spec.name, updated), through
            return await self._answer(again, call, caller, options)

        call.verdict = "allowed"
        reasons = (verdict.reason, *call.hooked.asks) if verdict.action == "ask" else call.hooked.asks
        call.hooked.question = " ".join(reasons)
        scope = self._scope(request, context.policy, call, caller)
        calls = NestedCalls(dispatcher=self, caller=caller, rights=context.rights, parent_id=call.id)
        user = User(caller, self.shown)
        # What a preview found out is there for the run.
        runtime = cache(partial(host.runtime, needs=spec.needs, scope=scope, user=user, calls=calls))
        if reasons and not (self.is_dry_run or call.is_trial):
            await self._ask(context, call, caller, runtime)

        self._check_available(spec, host, caller)
        if call.is_trial:
            return Result(text="")
        if self.is_dry_run:
            call.verdict = "dry-run"
            raise Denied(_dry_run(request, call))

        room = replace(call.room, bytes=min(call.room.bytes, spec.limits.output_bytes))
        if override is not None:
            context = replace(context, spec=replace(spec, run=override.run))
            room = Room(bytes=override.output_bytes)
        running = self._run(context, runtime(), f"{self.user} {caller.name}")
        output = await (call.hooked.around(running) if call.hooked.hooks else running)
        if output.state_update:
            self.states.setdefault(caller.owner, {}).update(output.state_update)
        return await self._enveloped(output, (*ignored(spec, arguments), *call.hooked.notes), room, host)

    async def _run(self, context: _CallContext, runtime: Runtime, client: str) -> Output:
        """Run the tool once the call has its slots.

        Raises:
            Unavailable: no slot became free in time.
            TimedOut: the tool took longer than its deadline, which starts when it gets its slot.
        """
        spec = context.spec
        is_read = context.request.level is Permission.READ_ONLY and spec.kind != "other"
        # A serial call acquires its own slot first, so that it holds no slot of the reads while it waits.
        alone = self.slots.serial.slot(client, self.queue_seconds) if spec.serial else _NO_SLOT
        turn = self.slots.reads.slot(client, self.queue_seconds) if is_read else _NO_SLOT
        output = None
        try:
            async with alone, turn:
                with anyio.move_on_after(spec.limits.deadline):
                    assert not isinstance(spec.run, Forward)
                    output = await spec.run(context.args, runtime)
        except Overdue:
            raise Unavailable(
                f"The server is busy: {spec.name} waited {self.queue_seconds:g} s for its turn behind other "
                "calls and was not started. Nothing was done. Send it again, with fewer calls at once."
            ) from None
        if output is None:
            raise TimedOut(
                f"{spec.name} did not end within {spec.limits.deadline:g} s; ask for less in one call."
            )
        return output

    async def _located(
        self, found: _Found, sent: Args, call: CallRecord, caller: Caller, options: CallOptions
    ) -> _CallContext:
        """The call with canonical paths, restricted by its client and what is in force.

        Raises:
            ToolError: a path leaves the roots or cannot be used, or its file system does not answer.
        """
        entry, _, through = found
        spec, lists, restrictions = entry.spec, await caller.roots(), caller.restrictions()
        outside = sent.why_outside()
        if restrictions is not None:
            call.mode = self.policy.under(restrictions).ceiling.flag

        def located() -> tuple[Policy, HostServices, tuple[str, ...], Args]:
            if self.read_project is not None:
                self.read_project()
            policy = self.project(self.policy)
            host = self.host.owned_by(caller.owner, is_outside=bool(outside))
            folders = self.host.restricted_to(*lists).workspace.roots
            if restrictions is not None:
                policy = policy.under(restrictions)
                if policy.ceiling < self.policy.ceiling:
                    host = host.lowered(policy.ceiling, restrictions.source)
                host = host.under(restrictions)
            host = host.restricted_to(*lists)
            return policy, host, folders, respelt(spec, sent, host)

        if lists or restrictions or spec.path_fields or self.read_project:
            try:
                policy, host, folders, args = await self.host.lookups.run(caller.name, located)
            except (Denied, InvalidInput) as error:
                call.verdict = "refused-path" if isinstance(error, Denied) else "invalid"
                raise
        else:
            policy, host, folders, args = located()
        request = Request(
            tool=spec.name,
            level=_level(spec, host),
            outside=outside,
            subjects=subjects_of(spec, args, host),
            needs=spec.needs,
            script=spec.script(args) if spec.script else "",
            argument=partial(argument_texts, args),
            through=through,
        )
        rights = Rights(folders=folders, confined_to=restrictions, depth=options.depth)
        context = _CallContext(spec=spec, args=args, request=request, policy=policy, host=host, rights=rights)
        return self._narrowed(context, call, (*self.narrowings.of(caller.owner), *options.narrowings))

    def _narrowed(
        self, context: _CallContext, call: CallRecord, in_force: tuple[Narrowing, ...]
    ) -> _CallContext:
        """The call under what is in force for it and its tool; what it starts has its rights, too."""
        if context.spec.name in self.requirements:
            in_force = (*in_force, self.requirements[context.spec.name])
        created_under = Narrowing(
            source="the permission mode under which it was created", ceiling=self.policy.ceiling
        )
        context = replace(context, rights=context.rights.narrowed(created_under, *in_force))
        if narrowings := [one for one in in_force if one.applies(context.request)]:
            context = context.lowered(narrowings)
            call.mode = context.policy.ceiling.flag
        call.permission = context.request.level
        return context

    def _found(self, entry: Entry, call: CallRecord) -> _Found:
        """The call as its tool gets it. Raises: ToolError: it forwards to no tool, or to a forwarding one."""
        call.tool, call.needs, call.verdict = entry.spec.name, entry.spec.needs, "invalid"
        arguments = self.registry.translate(call.name, call.arguments)
        if not isinstance(entry.spec.run, Forward):
            return entry, arguments, ""
        name, its_own = entry.spec.run.target(checked(entry, arguments))
        try:
            target = self.registry.find(name)
        except UnknownTool:
            call.verdict = "unknown"
            why = self.registry.foreign.why_missing(name) if name.startswith(FOREIGN) else ""
            raise NotFound(
                f"{entry.spec.name} found no tool of that name; ToolSearch finds names. {why}".rstrip()
            ) from None
        if target.spec.forwards:
            raise InvalidInput(f"{entry.spec.name} cannot call {name}; name the tool that is to run.")
        return target, self.registry.translate(name, its_own), entry.spec.name

    def _scope(self, request: Request, policy: Policy, call: CallRecord, caller: Caller) -> Scope:
        """The scope of the call. The policy decides on later subjects as on the first ones, without asking
        again."""

        def refuses(*spellings: str) -> str | None:
            verdict = policy.decide(replace(request, subjects=(spellings,)))
            return None if verdict.action == "run" else verdict.reason

        def forbids(*spellings: str) -> str | None:
            verdict = policy.decide(replace(request, subjects=(spellings,)))
            permitted = verdict.action == "run" or verdict.rule == policy.decide(request).rule
            return None if permitted else verdict.reason

        return Scope(
            session=call.session,
            owner=caller.owner,
            refuses=refuses,
            forbids=forbids,
            seconds_to_answer=call.seconds_to_answer,
            room=call.room,
            catalogue=partial(self._catalogue, caller),
        )

    async def _enveloped(
        self, output: Output, notes: Sequence[str], room: Room, host: HostServices
    ) -> Result:
        """The output as clients see it, with `notes` at its end, cut to fit `room`."""
        # The last line feed of a text is often taken away: what is left of a CRLF is no character of its own.
        text = output.text.removesuffix("\r")
        text = self.shown(noted(text, notes) if notes else text)
        whole = output.whole and self.shown(output.whole)
        output = await fit(replace(output, text=text, whole=whole), room, host.save)
        data = output.data.model_dump(mode="json") if output.data is not None else None
        return Result(
            text=output.text,
            data=data if data is None or self.raw else visible_values(data),
            images=output.images,
            resources=output.resources
            and tuple(
                ResourceLink(uri=self.shown(link.uri), name=self.shown(link.name))
                for link in output.resources
            ),
            truncated=output.truncated,
            saved_output=output.saved_output,
            sha256=output.sha256,
            exit_status=output.exit_status,
        )

    def _check_available(self, spec: ToolSpec, host: HostServices, caller: Caller) -> None:
        """Raises: Unavailable: a capability or the model that the tool needs is missing."""
        if not spec.needs <= host.permissions.keys():
            found = host.reasons(spec.needs - host.permissions.keys())
            if sandbox := [why.text for why in found if why.kind == "sandbox"]:
                raise SandboxUnavailable(sandbox[0])
            raise Unavailable(f"{spec.name} is not available: {found[0].text}.")
        if spec.name in self.without_model and caller.sampling() is None:
            raise Unavailable(NO_MODEL.format(spec.name))
        if spec.name in self.without_own_model:
            raise Unavailable(NO_OWN_MODEL.format(spec.name))

    def _check_offered(self, request: Request, call: CallRecord) -> None:
        """Raises: Denied: the operator did not switch the tool on."""
        if off := [*filterfalse(self._is_offered, request.tools)]:
            call.verdict = "refused-off"
            raise Denied(
                f"{off[0]} is switched off on this server. Its operator can add it with --tools {off[0]}, "
                "unless --exclude-tools or a project's file names it."
            )

    def _decided(self, context: _CallContext, call: CallRecord) -> Verdict:
        """What the policy decides. Raises: Denied: by it, the client or the check of dangerous commands."""
        request = context.request
        verdict = context.policy.decide(request)
        call.rule, call.decision = verdict.rule, verdict
        if verdict.action == "refuse":
            call.verdict = "refused-rule" if verdict.rule else "refused-ceiling"
            raise Denied(verdict.reason)
        for why in context.host.reasons(request.needs):
            if why.kind == "client":
                call.verdict = "refused-ceiling"
                raise Denied(
                    f"{request.tool} cannot run: {why.text}. The user can change that in the client."
                )
        if request.script and (danger := objection(request.script)):
            call.verdict = "refused-watchdog"
            raise Denied(danger)
        return verdict

    async def _hooked(
        self, context: _CallContext, call: CallRecord, arguments: Mapping[str, JsonValue]
    ) -> Arguments | None:
        """Run the hooks before the call; returns its arguments if one changed them.

        Raises:
            Denied: by one.
        """
        request, hooked, rule = context.request, call.hooked, call.rule
        hooked.hooks = tuple(hook for hook in self.hooks if not call.is_trial and hook.is_about(request))
        if hooked.hooks:
            hooked.given = {
                "session_id": call.session,
                "cwd": next(iter(context.rights.folders or ()), ""),
                "permission_mode": context.policy.ceiling.flag,
                "tool_name": request.tool,
                "tool_input": as_sent(context.spec, context.args, arguments),
                "tool_subjects": [spellings[0] for spellings in request.subjects],
                "tool_use_id": call.id,
            }
        try:
            return await hooked.before()
        except Denied:
            call.verdict = "refused-hook"
            raise
        finally:
            call.rule = ", ".join(filter(None, (rule, *hooked.decided)))

    async def _ask(
        self, context: _CallContext, call: CallRecord, caller: Caller, runtime: Callable[[], Runtime]
    ) -> None:
        """Raises: Denied, Conflict: nobody said yes, or the file changed since the question."""
        call.verdict = "asked"
        spec, args, host = context.spec, context.args, context.host
        diff, content = await change_of(spec, args, host)
        inquiry = Inquiry(
            call=call,
            request=replace(context.request, preview=await _preview(context, runtime)),
            arguments=args.model_dump(mode="json", by_alias=True, exclude_unset=True),
            owner=caller.owner,
            roots=host.workspace.roots,
            policy=self.policy,
            reason=call.hooked.question,
            rules=self.rules,
            diff=diff,
            content=content,
        )
        if why := await self.approve(inquiry, caller.ask):
            raise Denied(why)
        if (await change_of(spec, args, host))[1] != content:
            raise Conflict("The file changed after the question. Nothing was done; read it and call again.")


def described(text: str, choices: Sequence[tuple[str, str]]) -> str:
    """Add a line for each choice to `text`, as many as there is room for; the descriptions may be hostile."""
    for number, (name, words) in enumerate(choices):
        line = f"\n- {visible(name)}: {visible(' '.join(words.split()))}"[:MAX_CHOICE]
        if len(text) + len(line) > MAX_CHOICES:
            return f"{text}\n- and {len(choices) - number} more"
        text += line
    return text


def _level(spec: ToolSpec, host: HostServices) -> Permission:
    return Permission.DANGER_FULL_ACCESS if host.is_outside else spec.level(host.permissions)


async def _preview(context: _CallContext, runtime: Callable[[], Runtime]) -> str:
    """What the question shows in the place of what the call touches; empty for just that."""
    spec, args, request = context.spec, context.args, context.request
    if request.outside:
        folders = "".join(f", in '{getattr(args, name)}'" for name in spec.path_fields)
        heading = f"Once, outside the sandbox{folders}. Why: {request.outside}"
        # What follows the heading is all script.
        return f"{' '.join(heading.split())}\nThe whole script:\n{request.script}"
    if spec.preview is None or not spec.needs <= context.host.permissions.keys():
        return ""
    return await spec.preview(args, runtime())


def _dry_run(request: Request, call: CallRecord) -> str:
    """The answer to a call that was decided only."""
    hooked = call.hooked
    would = f"waited for the user's approval: {hooked.question}" if hooked.question else "run"
    because = f" Decided by: {call.rule}." if call.rule else ""
    names = ", ".join(hook.name for hook in hooked.of("PreToolUse"))
    ran = f" Hooks that saw it: {names}." if names else ""
    return (
        f"Nothing was done: this server runs with --dry-run. {request.tool} ({request.level.flag}) would "
        f"have {would}.{because}{ran} Do not report it as done, and do not retry."
    )
