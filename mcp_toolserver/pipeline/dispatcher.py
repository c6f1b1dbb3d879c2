"""The one way to run a tool.

    find → validate → decide → watch → ask → grant → queue → run under a deadline → envelope → truncate

Only cancellation and `UnknownTool` escape `Dispatcher.call`; every other failure is a `Result` whose text
says what was wrong and what to do next. Every call produces exactly one record; if the
recorder fails, calls are rejected. `Dispatcher.shown` escapes every text that leaves the server.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import (
    LOCAL,
    SECONDS_TO_ANSWER,
    Report,
    SavedOutput,
    Scope,
    ToolCard,
)
from mcp_toolserver.capabilities.permissions import Capability, Permission, Reason
from mcp_toolserver.errors import (
    Denied,
    InvalidInput,
    NotFound,
    SandboxUnavailable,
    TimedOut,
    ToolError,
    Unavailable,
    UnknownTool,
)
from mcp_toolserver.pipeline.call import (
    DEFAULT_OPTIONS,
    Caller,
    CallOptions,
    InputRequired,
    OutputOverride,
    Result,
    Rights,
    User,
)
from mcp_toolserver.pipeline.call_record import CallRecord, Recorder, begin, end, new_id
from mcp_toolserver.pipeline.fair_semaphore import FairSemaphore, Overdue
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.pipeline.registry import Entry, Registry
from mcp_toolserver.pipeline.truncate import Fitted, fit
from mcp_toolserver.pipeline.validation import PathCanonicalizer, checked, names_paths, respelt, subjects_of
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.dangerous_commands import CallCheck, first_objection
from mcp_toolserver.policy.required_permission import level, missing
from mcp_toolserver.policy.rules import Narrowing, Policy, Request, Rule
from mcp_toolserver.text.lines.escape_invisible import visible, visible_values
from mcp_toolserver.tool_spec import Args, Forward, Output, Profile, Runtime, ToolSpec

T = TypeVar("T")

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


@dataclass(frozen=True, kw_only=True)
class RunningCall:
    """A call that passed all checks."""

    needs: frozenset[Capability]
    caller: Caller
    user: User
    report: Report
    scope: Scope
    dispatcher: "Dispatcher"
    """Runs the calls that this one makes."""
    rights: Rights
    """What these may do at most."""
    id: str


class Host(PathCanonicalizer, Protocol):
    """The capabilities, paths and saved outputs of this machine, as far as one call may use them."""

    @property
    def permissions(self) -> Mapping[Capability, Permission]:
        """The permission that each available capability requires on this host."""
        ...

    @property
    def unavailable(self) -> Mapping[Capability, Reason]:
        """Why each other capability is unavailable, those that the client's own policy removes included."""
        ...

    @property
    def roots(self) -> tuple[str, ...]:
        """Absolute paths of the folders that calls may use."""
        ...

    @property
    def open_world(self) -> frozenset[Capability]:
        """The capabilities that reach beyond this machine's files."""
        ...

    def owned_by(self, owner: str) -> "Host":
        """The same host for the calls of `owner`, which may read the saved outputs of `owner` only."""
        ...

    def restricted_to(self, *lists: Sequence[str]) -> "Host":
        """The same host, restricted to what of its own roots lies in the folders of each list. Blocks."""
        ...

    async def look_up(self, client: str, work: Callable[[], T]) -> T:
        """Run `work`, which blocks while it resolves paths that `client` named, and return its result.

        Raises:
            TimedOut: the file system does not answer in time.
        """
        ...

    def under(self, restrictions: ClientRestrictions) -> "Host":
        """The same host, restricted to what `restrictions` allows. Blocks."""
        ...

    def lowered(self, ceiling: Permission, source: str) -> "Host":
        """The same host, with what a server with the permission mode `ceiling` has. `source` is what lowers
        it, for error messages."""
        ...

    def runtime(self, call: "RunningCall") -> Runtime:
        """A runtime with the capabilities that the tool of the call needs, and no others."""
        ...

    async def save(self, text: str) -> SavedOutput:
        """Save a long text for the caller. Raises: OSError: it cannot be saved."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The tool that a call names, and its arguments under the tool's own names and in its own units."""

    entry: Entry
    arguments: Mapping[str, JsonValue]
    through: str = ""
    """The forwarding tool, if the call came through one."""


_NO_SLOT = nullcontext()
"""Stands for the slot of a call that needs none."""


@dataclass(frozen=True, kw_only=True)
class _CallContext:
    """The policy and host of one call, restricted by its client and by what is in force for its owner."""

    policy: Policy
    host: Host
    rights: Rights

    def lowered(self, narrowings: Sequence[Narrowing]) -> "_CallContext":
        """The same with fewer rights."""
        lowest = min(one.ceiling for one in narrowings)
        host = self.host
        if lowest < self.policy.ceiling:
            source = next(one.source for one in narrowings if one.ceiling is lowest)
            host = host.lowered(lowest, source)
        return replace(self, policy=self.policy.narrowed(narrowings), host=host)


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
    host: Host
    unlisted: frozenset[str] = frozenset()
    """Offered tools that are not listed; a client that knows the name can call them."""
    for_resources: frozenset[str] = frozenset()
    """Tools that a resource may use although they are not offered: those that no toolset in use has."""
    without_model: frozenset[str] = frozenset()
    """Tools that need a model where the operator configured none: they run only for clients with one."""
    objections: tuple[CallCheck, ...] = ()
    recorder: Recorder | None = None
    """Records every call."""
    raw: bool = False
    """Whether to send invisible characters without escaping them."""
    user: str = ""
    """The name whose token all callers have, for the record; empty without named tokens."""
    narrowings: Narrowings = field(default_factory=Narrowings)
    """What takes rights from the calls of each owner."""
    rules: Callable[[Sequence[str]], tuple[Rule, ...]] = lambda _: ()
    """Parses rules; omits those that cannot be parsed."""
    on_behalf_of: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    """Lists what is made inside the context to an owner; see `ChangeEvents.on_behalf_of`."""
    queue_seconds: float = SECONDS_TO_ANSWER
    """How long a call may wait for a slot."""
    clients: dict[str, Caller] = field(default_factory=dict[str, Caller])
    """The client on stdio, by its owner `LOCAL`, once it has made a call."""
    slots: Slots = field(default_factory=Slots)

    def level(self, entry: Entry) -> Permission:
        """The permission that the tool needs on this host; of a forwarding tool, the highest of its
        targets."""
        if not entry.spec.forwards:
            return level(entry.spec, self.host.permissions)
        return max(map(self.level, self._targets), default=Permission.READ_ONLY)

    def reach(self, entry: Entry) -> frozenset[Capability]:
        """The open-world capabilities that the tool, or one that it may call, needs."""
        others = [other.spec for other in self._targets] if entry.spec.forwards else []
        return self.host.open_world & frozenset[Capability]().union(
            entry.spec.needs, *(spec.needs for spec in others)
        )

    def listed(self, *, samples: bool = False) -> tuple[Entry, ...]:
        """The tools that a client sees in the list, by name. `samples` is whether it offers its model."""
        omitted = self.unlisted if samples else self.unlisted | self.without_model
        return tuple(entry for entry in self.available() if entry.spec.name not in omitted)

    def available(self) -> tuple[Entry, ...]:
        """The tools that this server can run: switched on, available here and not above the ceiling, by
        name."""
        return self._available

    @cached_property
    def _available(self) -> tuple[Entry, ...]:
        return tuple(filter(self._is_available, self.registry.entries.values()))

    def _is_available(self, entry: Entry) -> bool:
        return (
            entry.spec.name in self.offered
            and self.level(entry) <= self.policy.ceiling
            and not missing(entry.spec.needs, self.host.permissions)
        )

    def entries_for(self, owner: str, narrowings: Sequence[Narrowing]) -> tuple[Entry, ...]:
        """The listed tools that calls of `owner` under `narrowings` can use, by name; a rule with a pattern
        counts as the whole tool."""
        every = (*self.narrowings.of(owner), *narrowings)
        lowest = min((one.ceiling for one in every), default=self.policy.ceiling)
        host = self.host.lowered(lowest, "") if lowest < self.policy.ceiling else self.host

        named = [{rule.tool for rule in one.tools} for one in every if one.tools is not None]

        def can_run(entry: Entry) -> bool:
            needs = entry.spec.needs
            return (
                all(tools & {"*", entry.spec.name} for tools in named)
                and not missing(needs, host.permissions)
                and (entry.spec.forwards or level(entry.spec, host.permissions) <= lowest)
            )

        return tuple(filter(can_run, self.listed(samples=True)))

    @cached_property
    def _targets(self) -> tuple[Entry, ...]:
        """The tools that a forwarding tool may call."""
        others = (entry for entry in self.registry.entries.values() if not entry.spec.forwards)
        return tuple(filter(self._is_available, others))

    def _catalogue(self, *, samples: bool) -> tuple[ToolCard, ...]:
        return tuple(
            ToolCard(
                name=entry.spec.name,
                description=entry.spec.description,
                aliases=entry.other_names,
                toolset=entry.toolset,
                permission=self.level(entry),
                schema=json.dumps(entry.spec.schema, ensure_ascii=False, separators=(",", ":")),
                arguments=tuple(entry.spec.argument_names.values()),
                core=entry.spec.profile is Profile.LEAN,
            )
            for entry in self.available()
            if samples or entry.spec.name not in self.without_model
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
            parent_id=options.parent_id,
            id=options.call_id or new_id(),
        )
        if (why := await begin(self.recorder, call)) is not None:
            return Result(text=why, error=Unavailable.kind, call_id=call.id)
        started = time.perf_counter()
        try:
            result = await self._settled(call, caller, options)
        except BaseException:
            await self._record(call, started)
            raise
        call.outcome = result.error or ("pending" if result.pending else "output")
        call.text = result.text
        if (why := await self._record(call, started)) is not None:
            result = Result(text=why, error=Unavailable.kind)
        return replace(result, duration_ms=call.duration_ms, call_id=call.id)

    def may_be_long(self, name: str, arguments: Mapping[str, JsonValue] | None) -> bool:
        """Whether such a call may take longer than clients wait. Raises: UnknownTool."""
        entry = self.registry.find(name)
        try:
            found = self._found(entry, CallRecord(name=name, session="", arguments=arguments or {}))
        except Exception:  # noqa: BLE001  the call ends at once with the same error; `call` reports and records it
            return False
        return found.entry.spec.may_be_long

    def needs_client_model(self, name: str, arguments: Mapping[str, JsonValue] | None) -> bool:
        """Whether such a call runs only with the client's model. Raises: UnknownTool."""
        entry = self.registry.find(name)
        if not entry.spec.forwards:
            return entry.spec.name in self.without_model
        try:
            found = self._found(entry, CallRecord(name=name, session="", arguments=arguments or {}))
        except ToolError:
            # `call` reports it.
            return False
        return found.entry.spec.name in self.without_model

    def shown(self, text: str) -> str:
        """Escape the invisible characters of a text for the client, unless the operator turned that off."""
        return text if self.raw else visible(text)

    async def _record(self, call: CallRecord, started: float) -> str | None:
        call.duration_ms = (time.perf_counter() - started) * 1000
        return await end(self.recorder, call)

    async def _settled(self, call: CallRecord, caller: Caller, options: CallOptions) -> Result:
        entry = self.registry.find(call.name)
        call.tool, call.needs = entry.spec.name, entry.spec.needs
        call.verdict, call.outcome = "undecided", "cancelled"
        try:
            return await self._answer(entry, call, caller, options)
        except InputRequired:
            return Result(text="", pending=True)
        except ToolError as error:
            return Result(text=self.shown(str(error)), error=error.kind)
        except Exception:  # noqa: BLE001  the one place where a bug becomes an answer; its text stays in the log
            return _bug(entry.spec.name, call.id)

    async def _answer(self, entry: Entry, call: CallRecord, caller: Caller, options: CallOptions) -> Result:
        found = self._found(entry, call)
        entry, spec = found.entry, found.entry.spec
        call.tool, call.needs, call.permission = spec.name, spec.needs, self.level(entry)
        args = self._checked(entry, found.arguments, call)
        context, args = await self._located(entry, args, call, caller, options)
        request = Request(
            tool=spec.name,
            level=level(spec, context.host.permissions),
            subjects=subjects_of(entry, args, context.host),
            needs=spec.needs,
            through=found.through,
        )
        in_force = (*self.narrowings.of(caller.owner), *options.narrowings)
        if narrowings := [one for one in in_force if one.applies(request)]:
            context = context.lowered(narrowings)
            request = replace(request, level=level(spec, context.host.permissions))
            call.permission, call.mode = request.level, context.policy.ceiling.flag
        host, output_override = context.host, options.output_override
        if output_override is None or spec.name not in self.for_resources:
            self._check_offered(request, call)
        await self._permit(request, context, call, caller)
        if unavailable := missing(spec.needs, host.permissions):
            raise unavailable_error(spec.name, unavailable, host)
        if spec.name in self.without_model and caller.sampling() is None:
            raise Unavailable(NO_MODEL.format(spec.name))
        created_under = Narrowing(
            source="the permission mode under which it was created", ceiling=self.policy.ceiling
        )
        runtime = host.runtime(
            RunningCall(
                needs=spec.needs,
                caller=caller,
                user=User(caller, self.shown),
                report=self._report(caller),
                scope=self._scope(request, context.policy, call, caller),
                dispatcher=self,
                rights=context.rights.narrowed(created_under, *in_force),
                id=call.id,
            )
        )
        spec = _overridden(spec, output_override)
        output = await self._run(spec, args, runtime, request=request, client=f"{self.user} {caller.name}")
        if (text := self.shown(output.text)) != output.text:
            output = replace(output, text=text)
        return self._enveloped(output, await fit(output, spec.limits.output_bytes, host.save))

    async def _run(
        self, spec: ToolSpec, args: Args, runtime: Runtime, *, request: Request, client: str
    ) -> Output:
        """Run the tool once the call has its slots.

        Raises:
            Unavailable: no slot became free in time.
            TimedOut: the tool took longer than its deadline, which starts when it gets its slot.
        """
        is_read = request.level is Permission.READ_ONLY and spec.kind != "other"
        # A serial call acquires its own slot first, so that it holds no slot of the reads while it waits.
        alone = self.slots.serial.slot(client, self.queue_seconds) if spec.serial else _NO_SLOT
        turn = self.slots.reads.slot(client, self.queue_seconds) if is_read else _NO_SLOT
        output = None
        try:
            async with alone, turn:
                with anyio.move_on_after(spec.limits.deadline):
                    assert not isinstance(spec.run, Forward)
                    output = await spec.run(args, runtime)
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
        self, entry: Entry, args: Args, call: CallRecord, caller: Caller, options: CallOptions
    ) -> tuple[_CallContext, Args]:
        """The policy and the host, restricted by the client, and the arguments with canonical paths.

        Raises:
            ToolError: a path leaves the roots or cannot be used, or its file system does not answer.
        """
        if caller.owner == LOCAL:
            self.clients[LOCAL] = caller
        lists, restrictions, policy = await caller.roots(), caller.restrictions(), self.policy
        if restrictions is not None:
            policy = policy.under(restrictions)
            call.mode = policy.ceiling.flag

        def located() -> tuple[_CallContext, Args]:
            own = self.host.restricted_to(*lists)
            rights = Rights(folders=own.roots, confined_to=restrictions, depth=options.depth)
            host = self.host.owned_by(caller.owner)
            if restrictions is not None:
                if policy.ceiling < self.policy.ceiling:
                    host = host.lowered(policy.ceiling, restrictions.source)
                host = host.under(restrictions)
            host = host.restricted_to(*lists)
            return _CallContext(policy=policy, host=host, rights=rights), respelt(entry, args, host)

        if not lists and restrictions is None and not names_paths(entry):
            return located()
        try:
            return await self.host.look_up(caller.name, located)
        except (Denied, InvalidInput) as error:
            call.verdict = "refused-path" if isinstance(error, Denied) else "invalid"
            raise

    def _found(self, entry: Entry, call: CallRecord) -> _Found:
        """Find the tool and arguments of the call; a call of a forwarding tool becomes one of its target."""
        try:
            arguments = self.registry.translate(call.name, call.arguments)
            run = entry.spec.run
            if not isinstance(run, Forward):
                return _Found(entry=entry, arguments=arguments)
            name, its_own = run.target(checked(entry, arguments))
            target = self.registry.find(name)
            if target.spec.forwards:
                raise InvalidInput(f"{entry.spec.name} cannot call {name}; name the tool that is to run.")
            renamed = self.registry.translate(name, its_own)
        except UnknownTool:
            call.verdict = "unknown"
            raise NotFound(f"{entry.spec.name} found no tool of that name; ToolSearch finds names.") from None
        except ToolError:
            call.verdict = "invalid"
            raise
        return _Found(entry=target, arguments=renamed, through=entry.spec.name)

    def _checked(self, entry: Entry, arguments: Mapping[str, JsonValue], call: CallRecord) -> Args:
        try:
            return checked(entry, arguments)
        except InvalidInput:
            call.verdict = "invalid"
            raise

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
            catalogue=partial(self._catalogue, samples=caller.sampling() is not None),
        )

    def _report(self, caller: Caller) -> Report:
        async def report(message: str) -> None:
            await caller.report(self.shown(message))

        return report

    def _enveloped(self, output: Output, fitted: Fitted) -> Result:
        data = output.data.model_dump(mode="json") if output.data is not None else None
        return Result(
            text=fitted.text,
            data=data if data is None or self.raw else visible_values(data),
            images=output.images,
            truncated=fitted.truncated,
            saved_output=fitted.saved_output,
            sha256=output.sha256,
        )

    def _check_offered(self, request: Request, call: CallRecord) -> None:
        """Raises: Denied: the operator did not switch the tool on."""
        if off := [tool for tool in request.tools if tool not in self.offered]:
            call.verdict = "refused-off"
            raise Denied(
                f"{off[0]} is switched off on this server. Its operator can add it with --tools {off[0]}, "
                "unless --exclude-tools names it."
            )

    async def _permit(
        self, request: Request, context: _CallContext, call: CallRecord, caller: Caller
    ) -> None:
        """Apply the policy and the checks, and ask the user if needed.

        Raises:
            Denied: by a rule, the ceiling, the check of dangerous commands or the user.
        """
        verdict = context.policy.decide(request)
        call.rule = verdict.rule
        if verdict.action == "refuse":
            call.verdict = "refused-rule" if verdict.rule else "refused-ceiling"
            raise Denied(verdict.reason)
        found = reasons(request.needs, context.host)
        if removed := [why.text for why in found if why.kind == "client"]:
            call.verdict = "refused-ceiling"
            raise Denied(f"{request.tool} cannot run: {removed[0]}. The user can change that in the client.")
        if objection := first_objection(self.objections, request):
            call.verdict = "refused-watchdog"
            raise Denied(objection)
        call.verdict = "allowed"
        if verdict.action == "ask":
            await self._ask(request, verdict.reason, call, caller)

    async def _ask(self, request: Request, reason: str, call: CallRecord, caller: Caller) -> None:
        call.verdict = "asked"
        is_granted = await caller.ask(self.shown(_question(request, reason)))
        call.verdict = "asked-yes" if is_granted else "asked-no"
        if not is_granted:
            raise Denied(
                f"{request.tool} needs a human's approval and did not get it. {reason} "
                "Go on without it, or tell the user what you wanted to do."
            )


def _overridden(spec: ToolSpec, output_override: OutputOverride | None) -> ToolSpec:
    if output_override is None:
        return spec
    return replace(
        spec, run=output_override.run, limits=replace(spec.limits, output_bytes=output_override.output_bytes)
    )


def _question(request: Request, reason: str) -> str:
    """The question to the user. It shows each subject whole, however long, with escapes."""
    touched = "\n".join(ascii(subject[0])[1:-1] for subject in request.subjects)
    return f"Allow {request.tool} ({request.level.flag})?\n{touched}\n{reason}"


def _bug(tool: str, reference: str) -> Result:
    log.exception("%s failed; reference %s", tool, reference)
    return Result(
        text=f"{tool} failed inside the server. The server's log has the details under {reference}.",
        error="internal",
    )


def unavailable_error(tool: str, needs: Collection[Capability], host: Host) -> Unavailable:
    """The error that says why `tool`, which needs these capabilities, cannot run here."""
    found = reasons(needs, host)
    if sandbox := [why.text for why in found if why.kind == "sandbox"]:
        return SandboxUnavailable(sandbox[0])
    return Unavailable(f"{tool} is not available: {found[0].text}.")


def reasons(needs: Collection[Capability], host: Host) -> list[Reason]:
    """Why those of `needs` that are not available are not."""
    return [why for need, why in host.unavailable.items() if need in needs]
