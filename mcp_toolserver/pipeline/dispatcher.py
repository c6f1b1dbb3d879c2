"""The one way to run a tool.

    find → validate → decide → watch → ask → grant → run under a deadline → envelope → truncate

Only cancellation and `UnknownTool` escape `Dispatcher.call`; every other failure is a `Result` whose text
says what was wrong and what to do next. However a call ends, it is written down once; where that is not
possible, none runs. Every text on its way out passes `Dispatcher.shown`.
"""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.calls import Report, Scope, Spill
from mcp_toolserver.capabilities.catalogue import ToolCard
from mcp_toolserver.capabilities.prices import Capability, Permission, Prices
from mcp_toolserver.conversation import Human, Speaker
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
from mcp_toolserver.limits import Fitted, fit
from mcp_toolserver.policy.level import level, missing
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.policy.rules import Policy, Request
from mcp_toolserver.policy.watchdog import Objection, watch
from mcp_toolserver.record import Call, Recorder, new_id
from mcp_toolserver.registry import Entry, Registry
from mcp_toolserver.spec import Args, Forward, Image, Output, Profile, Runtime, ToolSpec
from mcp_toolserver.text.visible import visible, visible_values
from mcp_toolserver.turns import Turns
from mcp_toolserver.validation import Places, subjects_of, validated

log = logging.getLogger(__name__)

PARALLEL_READS = 12
"""Read-only calls that run at the same time; more wait their turn."""

READS_OF_ONE = 10
"""Those of one client."""


class Host(Places, Protocol):
    """What the dispatcher asks of the operating system's side."""

    @property
    def prices(self) -> Prices:
        """What each capability costs here."""
        ...

    @property
    def absent(self) -> Mapping[Capability, str]:
        """Why a capability has no price, where a missing wall is the reason."""
        ...

    @property
    def withheld(self) -> Mapping[Capability, str]:
        """Why a capability has no price, where a setting or a program that is not installed is the reason."""
        ...

    @property
    def open_world(self) -> frozenset[Capability]:
        """What reaches beyond this machine's files."""
        ...

    def within(self, roots: Sequence[str]) -> "Host":
        """The same host, confined to those of `roots` that lie inside its own."""
        ...

    def narrowed(self, narrowing: Narrowing) -> "Host":
        """The same host, with no more than `narrowing` allows."""
        ...

    @property
    def forbidden(self) -> Mapping[Capability, str]:
        """Why a capability is not there for this call, where a client's own policy is the reason."""
        ...

    def grant(self, needs: frozenset[Capability], report: Report, human: Human, scope: Scope) -> Runtime:
        """A runtime with these capabilities and no others."""
        ...

    async def spill(self, text: str) -> Spill:
        """Keep a long text for the caller."""
        ...


class Pending(Exception):
    """The question goes to the client, which will send the call again with the answer."""


class Caller(Speaker, Protocol):
    """Who calls: how to reach them, and what they confine themselves to. See `Pending` for `elicit`."""

    @property
    def name(self) -> str:
        """What they call themselves, for the record; it proves nothing."""
        ...

    async def ask(self, question: str) -> bool:
        """Yes or no from a human; no when there is none.

        Raises:
            Pending: the answer comes with a later call.
        """
        ...

    async def report(self, message: str) -> None:
        """Progress of a long call."""
        ...

    async def roots(self) -> Sequence[str] | None:
        """Folders the client works in, which narrow the roots of the server; None for no opinion."""
        ...

    def narrowing(self) -> Narrowing | None:
        """What the client confines this call to; None for no opinion."""
        ...


@dataclass(frozen=True, kw_only=True)
class Result:
    """The envelope of every call."""

    text: str
    error: str | None = None
    """The kind of failure, None on success."""
    data: dict[str, JsonValue] | None = None
    images: tuple[Image, ...] = ()
    pending: bool = False
    """Not an answer yet: the client has to answer a question first."""
    truncated: bool = False
    spill: Spill | None = None
    duration_ms: float = 0.0
    call_id: str = ""

    def metadata(self) -> dict[str, JsonValue]:
        """Duration and id always; truncation and where the whole lies only when it applies."""
        found: dict[str, JsonValue] = {"duration_ms": round(self.duration_ms, 3), "call_id": self.call_id}
        if self.truncated:
            found["truncated"] = True
        if self.spill is not None:
            found["output_path"] = self.spill.path
        return found

    def envelope(self) -> dict[str, JsonValue]:
        """`{type: output|error, data | error_text, metadata}`."""
        if self.error is not None:
            return {"type": "error", "kind": self.error, "error_text": self.text, "metadata": self.metadata()}
        return {"type": "output", "data": self.data or self.text, "metadata": self.metadata()}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The tool that a call is for, and its arguments under the tool's own names and in its own units."""

    entry: Entry
    arguments: Mapping[str, JsonValue]
    through: str = ""
    """The tool that was called to call it, if any."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """What runs in a tool's place where what it gives is wanted in another form, such as a resource.

    The call is one of the tool in all else: its arguments, rules, permission, capabilities and record.
    """

    run: Callable[[Any, Runtime], Awaitable[Output]]
    output_bytes: int


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a call is made."""

    form: Form | None = None
    patient: bool = False
    """The caller waits for the end of all work."""
    call_id: str = ""
    """One is made where none is given."""


PLAIN = Manner()


@dataclass(frozen=True, kw_only=True)
class _Terms:
    """What one call is decided by."""

    policy: Policy
    host: Host


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """Runs tools for callers under one policy."""

    registry: Registry
    offered: frozenset[str]
    """Names of the tools that the operator switched on."""
    policy: Policy
    host: Host
    unlisted: frozenset[str] = frozenset()
    """Those of them that are not listed; who knows a name can call it."""
    objections: tuple[Objection, ...] = ()
    recorder: Recorder | None = None
    """Keeps a line of every call."""
    raw: bool = False
    """Send characters that cannot be seen as they are."""
    _reads: Turns = field(default_factory=lambda: Turns(PARALLEL_READS, READS_OF_ONE))

    def level(self, entry: Entry) -> Permission:
        """What a call of the tool needs on this host; of one that calls others, the most that one needs."""
        if not entry.label.forwards:
            return level(entry.label, self.host.prices)
        return max(map(self.level, self._targets()), default=Permission.READ_ONLY)

    def reach(self, entry: Entry) -> frozenset[Capability]:
        """What the tool, or one that it may call, needs of what reaches beyond this machine's files."""
        others = [other.label for other in self._targets()] if entry.label.forwards else []
        return self.host.open_world & frozenset[Capability]().union(
            entry.label.needs, *(label.needs for label in others)
        )

    def listed(self) -> tuple[Entry, ...]:
        """What clients are told of, by name."""
        return tuple(entry for entry in self.available() if entry.label.name not in self.unlisted)

    def available(self) -> tuple[Entry, ...]:
        """What this server offers: switched on, possible here and not above the ceiling, by name."""
        return tuple(filter(self._is_available, self.registry.entries.values()))

    def _is_available(self, entry: Entry) -> bool:
        return (
            entry.label.name in self.offered
            and self.level(entry) <= self.policy.ceiling
            and not missing(entry.label.needs, self.host.prices)
        )

    def _targets(self) -> Iterator[Entry]:
        """What a tool that calls others may come to."""
        others = (entry for entry in self.registry.entries.values() if not entry.label.forwards)
        return filter(self._is_available, others)

    def _catalogue(self) -> tuple[ToolCard, ...]:
        return tuple(
            ToolCard(
                name=entry.label.name,
                description=entry.label.description.strip(),
                aliases=entry.other_names,
                toolset=entry.toolset,
                permission=self.level(entry),
                schema=json.dumps(entry.label.schema, ensure_ascii=False, separators=(",", ":")),
                arguments=tuple(entry.label.argument_names.values()),
                core=entry.label.profile is Profile.LEAN,
            )
            for entry in self.available()
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None,
        caller: Caller,
        manner: Manner = PLAIN,
    ) -> Result:
        """Run one call through all the stages.

        Raises:
            UnknownTool: no tool has this name; a protocol error, not a result.
        """
        call = Call(
            name=name,
            session=caller.name,
            arguments=arguments or {},
            patient=manner.patient,
            id=manner.call_id or new_id(),
        )
        if self.recorder is not None and (why := self.recorder.begin(call)) is not None:
            return Result(text=why, error=Unavailable.kind, call_id=call.id)
        started = time.perf_counter()
        try:
            result = await self._settled(call, caller, manner.form)
        except BaseException:
            self._end(call, started)
            raise
        call.outcome = result.error or ("pending" if result.pending else "output")
        call.text = result.text
        if (why := self._end(call, started)) is not None:
            result = Result(text=why, error=Unavailable.kind)
        return replace(result, duration_ms=call.duration_ms, call_id=call.id)

    def may_be_long(self, name: str, arguments: Mapping[str, JsonValue] | None) -> bool:
        """Whether such a call may take longer than clients wait. Raises: UnknownTool."""
        entry = self.registry.find(name)
        try:
            found = self._found(entry, Call(name=name, session="", arguments=arguments or {}))
        except ToolError:
            # It ends at once, with this error.
            return False
        return found.entry.spec.may_be_long

    def shown(self, text: str) -> str:
        """`text` as it leaves the server: what cannot be seen escaped, unless the operator wants it."""
        return text if self.raw else visible(text)

    def _end(self, call: Call, started: float) -> str | None:
        call.duration_ms = (time.perf_counter() - started) * 1000
        return None if self.recorder is None else self.recorder.end(call)

    async def _settled(self, call: Call, caller: Caller, form: Form | None) -> Result:
        entry = self.registry.find(call.name)
        call.tool, call.needs = entry.label.name, entry.label.needs
        call.verdict, call.outcome = "undecided", "cancelled"
        try:
            return await self._answer(entry, call, caller, form)
        except Pending:
            return Result(text="", pending=True)
        except ToolError as error:
            return Result(text=self.shown(str(error)), error=error.kind)
        except Exception:  # noqa: BLE001  the one place where a bug becomes an answer; its text stays in the log
            return _bug(entry.label.name, call.id)

    async def _answer(self, entry: Entry, call: Call, caller: Caller, form: Form | None) -> Result:
        found = self._found(entry, call)
        entry, spec = found.entry, found.entry.spec
        call.tool, call.needs = spec.name, spec.needs
        call.permission = needed = self.level(entry)
        terms = self._terms(await caller.roots(), caller.narrowing(), call)
        host = terms.host
        args = self._validated(entry, found.arguments, call, host)
        subjects = subjects_of(entry, args, host)
        request = Request(tool=spec.name, level=needed, subjects=subjects, through=found.through)
        await self._permit(request, terms, call, caller)
        if lacking := missing(spec.needs, host.prices):
            raise _lacking(spec.name, lacking, host)
        human = Human(caller, self.shown)
        runtime = host.grant(
            spec.needs, self._report(caller), human, self._scope(request, terms.policy, call)
        )
        spec = _formed(spec, form)
        is_read = request.level is Permission.READ_ONLY and spec.kind != "other"
        turn = self._reads.place(caller.name) if is_read else nullcontext()
        output = None
        with anyio.move_on_after(spec.limits.deadline):
            async with turn:
                assert not isinstance(spec.run, Forward)
                output = await spec.run(args, runtime)
        if output is None:
            raise TimedOut(
                f"{spec.name} did not end within {spec.limits.deadline:g} s; ask for less in one call."
            )
        if (text := self.shown(output.text)) != output.text:
            output = replace(output, text=text)
        return self._enveloped(output, await fit(output, spec.limits.output_bytes, host))

    def _terms(self, roots: Sequence[str] | None, narrowing: Narrowing | None, call: Call) -> _Terms:
        """The policy and the host, less what the client takes away for this call."""
        policy, host = self.policy, self.host
        if narrowing is not None:
            policy, host = policy.under(narrowing), host.narrowed(narrowing)
            call.mode = policy.ceiling.flag
        return _Terms(policy=policy, host=host if roots is None else host.within(roots))

    def _found(self, entry: Entry, call: Call) -> _Found:
        """What the call is for. A call that is one of another tool goes on as that."""
        try:
            arguments = self.registry.translate(call.name, call.arguments)
            run = entry.spec.run
            if not isinstance(run, Forward):
                return _Found(entry=entry, arguments=arguments)
            name, its_own = run.target(validated(entry, arguments, self.host))
            target = self.registry.find(name)
            if target.label.forwards:
                raise InvalidInput(f"{entry.spec.name} cannot call {name}; name the tool that is to run.")
            renamed = self.registry.translate(name, its_own)
        except UnknownTool:
            call.verdict = "unknown"
            raise NotFound(f"{entry.spec.name} found no tool of that name; ToolSearch finds names.") from None
        except ToolError:
            call.verdict = "invalid"
            raise
        return _Found(entry=target, arguments=renamed, through=entry.spec.name)

    def _validated(self, entry: Entry, arguments: Mapping[str, JsonValue], call: Call, host: Host) -> Args:
        try:
            return validated(entry, arguments, host)
        except ToolError as error:
            call.verdict = "refused-path" if isinstance(error, Denied) else "invalid"
            raise

    def _scope(self, request: Request, policy: Policy, call: Call) -> Scope:
        """What the call goes on to by itself is decided like what it started with; nobody is asked again."""

        def refuses(subject: str) -> str | None:
            verdict = policy.decide(replace(request, subjects=((subject,),)))
            return None if verdict.action == "run" else verdict.reason

        return Scope(session=call.session, refuses=refuses, patient=call.patient, catalogue=self._catalogue)

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
            spill=fitted.spill,
        )

    async def _permit(self, request: Request, terms: _Terms, call: Call, caller: Caller) -> None:
        """Decide, watch and ask.

        Raises:
            Denied: by a rule, the ceiling, the watchdog or the human.
        """
        if off := [tool for tool in request.tools if tool not in self.offered]:
            call.verdict = "refused-off"
            raise Denied(f"{off[0]} is switched off on this server by its --tools or --toolsets setting.")
        verdict = terms.policy.decide(request)
        call.rule = verdict.rule
        if verdict.action == "refuse":
            call.verdict = "refused-rule" if verdict.rule else "refused-ceiling"
            raise Denied(verdict.reason)
        needs = self.registry.entries[request.tool].spec.needs
        if kept := [why for need, why in terms.host.forbidden.items() if need in needs]:
            call.verdict = "refused-ceiling"
            raise Denied(f"{request.tool} cannot run: {kept[0]}. The user can change that in the client.")
        if objection := watch(self.objections, request):
            call.verdict = "refused-watchdog"
            raise Denied(objection)
        call.verdict = "allowed"
        if verdict.action == "ask":
            await self._ask(request, verdict.reason, call, caller)

    async def _ask(self, request: Request, reason: str, call: Call, caller: Caller) -> None:
        call.verdict = "asked"
        is_granted = await caller.ask(self.shown(_question(request, reason)))
        call.verdict = "asked-yes" if is_granted else "asked-no"
        if not is_granted:
            raise Denied(
                f"{request.tool} needs a human's approval and did not get it. {reason} "
                "Go on without it, or tell the user what you wanted to do."
            )


def _formed(spec: ToolSpec, form: Form | None) -> ToolSpec:
    if form is None:
        return spec
    return replace(spec, run=form.run, limits=replace(spec.limits, output_bytes=form.output_bytes))


def _lacking(tool: str, needs: Sequence[Capability], host: Host) -> Unavailable:
    why = [host.absent[need] for need in needs if need in host.absent]
    if why:
        return SandboxUnavailable(why[0])
    if held := [host.withheld[need] for need in needs if need in host.withheld]:
        return Unavailable(f"{tool} is not available: {held[0]}.")
    names = ", ".join(need.value for need in needs)
    return Unavailable(f"{tool} needs {names}, which this host does not have.")


def _question(request: Request, reason: str) -> str:
    """What the human is shown. Nothing is left out: a long subject is shown whole, with escapes."""
    touched = "\n".join(ascii(subject[0])[1:-1] for subject in request.subjects)
    return f"Allow {request.tool} ({request.level.flag})?\n{touched}\n{reason}"


def _bug(tool: str, reference: str) -> Result:
    log.exception("%s failed; reference %s", tool, reference)
    return Result(
        text=f"{tool} failed inside the server. The server's log has the details under {reference}.",
        error="internal",
    )
