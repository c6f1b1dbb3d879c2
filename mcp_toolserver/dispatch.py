"""The one way to run a tool.

    find → validate → decide → watch → ask → grant → run under a deadline → envelope → truncate

Only cancellation and `UnknownTool` escape `Dispatcher.call`; every other failure is a `Result` whose text
says what was wrong and what to do next.
"""

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio
from pydantic import JsonValue, ValidationError

from mcp_toolserver.capabilities import CanonicalPath, Capability, Permission, Prices, Report, Spill
from mcp_toolserver.errors import Denied, InvalidInput, TimedOut, ToolError, Unavailable
from mcp_toolserver.limits import Fitted, fit
from mcp_toolserver.policy.level import level, missing
from mcp_toolserver.policy.rules import Policy, Request, Subject
from mcp_toolserver.policy.watchdog import Objection, watch
from mcp_toolserver.registry import Entry, Registry
from mcp_toolserver.text.arguments import lenient, refusal
from mcp_toolserver.tool import Args, Image, Output, Runtime

log = logging.getLogger(__name__)

PARALLEL_READS = 10
"""Read-only calls that run at the same time; more wait their turn."""


class Host(Protocol):
    """What the dispatcher asks of the operating system's side."""

    @property
    def prices(self) -> Prices:
        """What each capability costs here."""
        ...

    def within(self, roots: Sequence[str]) -> "Host":
        """The same host, confined to those of `roots` that lie inside its own."""
        ...

    def canonical(self, path: str) -> CanonicalPath:
        """Raises: ToolError: not inside a root, or not a path."""
        ...

    def spellings(self, path: CanonicalPath) -> Subject:
        """Every way a rule may name the path."""
        ...

    def grant(self, needs: frozenset[Capability], report: Report) -> Runtime:
        """A runtime with these capabilities and no others."""
        ...

    async def spill(self, text: str) -> Spill:
        """Keep a long text for the caller."""
        ...


class Pending(Exception):
    """The question goes to the client, which will send the call again with the answer."""


class Caller(Protocol):
    """Who calls: how to reach them, and what they confine themselves to."""

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

    def metadata(self) -> dict[str, JsonValue]:
        """Duration always; truncation and where the whole lies only when it applies."""
        found: dict[str, JsonValue] = {"duration_ms": round(self.duration_ms, 3)}
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
class Dispatcher:
    """Runs tools for callers under one policy."""

    registry: Registry
    offered: frozenset[str]
    """Names of the tools that the operator switched on."""
    policy: Policy
    host: Host
    objections: tuple[Objection, ...] = ()
    _reads: anyio.Semaphore = field(
        default_factory=lambda: anyio.Semaphore(PARALLEL_READS, fast_acquire=True)
    )

    def level(self, entry: Entry) -> Permission:
        """What a call of the tool needs on this host."""
        return level(entry.spec, self.host.prices)

    def listed(self) -> tuple[Entry, ...]:
        """What this server offers: switched on, possible here and not above the ceiling, by name."""
        return tuple(
            entry
            for name, entry in self.registry.entries.items()
            if name in self.offered
            and self.level(entry) <= self.policy.ceiling
            and not missing(entry.spec.needs, self.host.prices)
        )

    async def call(self, name: str, arguments: Mapping[str, JsonValue] | None, caller: Caller) -> Result:
        """Run one call through all the stages.

        Raises:
            UnknownTool: no tool has this name; a protocol error, not a result.
        """
        entry = self.registry.find(name)
        started = time.perf_counter()
        try:
            result = await self._answer(entry, name, arguments or {}, caller)
        except Pending:
            result = Result(text="", pending=True)
        except ToolError as error:
            result = Result(text=str(error), error=error.kind)
        except Exception:  # noqa: BLE001  the one place where a bug becomes an answer; its text stays in the log
            result = _bug(entry.spec.name)
        return replace(result, duration_ms=(time.perf_counter() - started) * 1000)

    async def _answer(
        self, entry: Entry, name: str, arguments: Mapping[str, JsonValue], caller: Caller
    ) -> Result:
        spec = entry.spec
        roots = await caller.roots()
        host = self.host if roots is None else self.host.within(roots)
        args = validated(entry, self.registry.translate(name, arguments), host)
        request = Request(tool=spec.name, level=self.level(entry), subjects=_subjects(entry, args, host))
        await self._permit(request, caller)
        if lacking := missing(spec.needs, host.prices):
            raise Unavailable(f"{spec.name} needs {', '.join(lacking)}, which this host does not have.")
        runtime = host.grant(spec.needs, caller.report)
        is_read = request.level is Permission.READ_ONLY and spec.kind != "other"
        turn = self._reads if is_read else nullcontext()
        output = None
        with anyio.move_on_after(spec.limits.deadline):
            async with turn:
                output = await spec.run(args, runtime)
        if output is None:
            raise TimedOut(
                f"{spec.name} did not end within {spec.limits.deadline:g} s; ask for less in one call."
            )
        return _enveloped(output, await fit(output, spec.limits.output_bytes, host))

    async def _permit(self, request: Request, caller: Caller) -> None:
        """Decide, watch and ask.

        Raises:
            Denied: by a rule, the ceiling, the watchdog or the human.
        """
        if request.tool not in self.offered:
            raise Denied(
                f"{request.tool} is switched off on this server by its --tools or --toolsets setting."
            )
        verdict = self.policy.decide(request)
        if verdict.action == "refuse":
            raise Denied(verdict.reason)
        if objection := watch(self.objections, request):
            raise Denied(objection)
        if verdict.action == "ask" and not await caller.ask(_question(request, verdict.reason)):
            raise Denied(
                f"{request.tool} needs a human's approval and did not get it. {verdict.reason} "
                "Go on without it, or tell the user what you wanted to do."
            )


def validated(entry: Entry, arguments: Mapping[str, JsonValue], host: Host) -> Args:
    """The arguments as the tool sees them: checked, and paths in canonical spelling.

    Raises:
        InvalidInput: names each argument that is wrong and says how.
        Denied: a path leaves the roots.
    """
    if why := refusal(dict(arguments)):
        raise InvalidInput(f"The arguments of {entry.spec.name} hold {why}. Send plain JSON values.")
    try:
        args = entry.spec.args.model_validate(lenient(arguments, entry.schema))
    except ValidationError as error:
        raise InvalidInput(_explained(entry, error)) from None
    if not entry.path_fields:
        return args
    return args.model_copy(update={name: host.canonical(getattr(args, name)) for name in entry.path_fields})


def _explained(entry: Entry, error: ValidationError) -> str:
    """One line per mistake, without the values that were sent."""
    lines = [f"{entry.spec.name} cannot use these arguments:"]
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"]) or "arguments"
        if detail["type"] == "extra_forbidden":
            accepted = ", ".join(entry.argument_names.values())
            lines.append(f"- {where}: unknown argument; it takes {accepted}")
        else:
            lines.append(f"- {where}: {detail['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


def _subjects(entry: Entry, args: Args, host: Host) -> tuple[Subject, ...]:
    paths = {getattr(args, name) for name in entry.path_fields}
    return tuple(
        host.spellings(CanonicalPath(subject)) if subject in paths else (subject,)
        for subject in entry.spec.subjects(args)
    )


def _question(request: Request, reason: str) -> str:
    """What the human is shown. Nothing is left out: a long subject is shown whole, with escapes."""
    touched = "\n".join(ascii(subject[0])[1:-1] for subject in request.subjects)
    return f"Allow {request.tool} ({request.level.flag})?\n{touched}\n{reason}"


def _enveloped(output: Output, fitted: Fitted) -> Result:
    return Result(
        text=fitted.text,
        data=output.data.model_dump(mode="json") if output.data is not None else None,
        images=output.images,
        truncated=fitted.truncated,
        spill=fitted.spill,
    )


def _bug(tool: str) -> Result:
    reference = secrets.token_hex(4)
    log.exception("%s failed; reference %s", tool, reference)
    return Result(
        text=f"{tool} failed inside the server. The server's log has the details under {reference}.",
        error="internal",
    )
