"""Hooks: the operator's code, which sees each call before and after it runs.

Input and output are those of Claude Code's hooks. A hook takes rights and gives none: before a call it denies
it, has the user asked, or changes the arguments, which makes a new call; `allow` has no effect. One that
fails before a call denies it; one that fails afterwards adds a note.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from mcp_toolserver.capabilities.call_scope import HookEvent
from mcp_toolserver.errors import Denied, ToolError
from mcp_toolserver.pipeline.call import InputRequired
from mcp_toolserver.policy.rules import Request, Rule

log = logging.getLogger(__name__)

Arguments = dict[str, JsonValue]


class _Shown(Protocol):
    @property
    def text(self) -> str: ...


T = TypeVar("T", bound=_Shown)


class _Part(BaseModel):
    # A misspelt key may stand for a denial.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
        defer_build=True,
    )


class _OfEvent(_Part):
    hook_event_name: HookEvent | None = None
    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str = ""
    updated_input: Arguments | None = None
    additional_context: str = ""


class HookOutput(_Part):
    """What a hook returns. `suppressOutput` and `systemMessage` are for terminals and have no effect."""

    proceeds: bool = Field(default=True, alias="continue")
    stop_reason: str = ""
    decision: Literal["approve", "block"] | None = None
    reason: str = ""
    suppress_output: bool = False
    system_message: str = ""
    of_event: _OfEvent = Field(default_factory=_OfEvent, alias="hookSpecificOutput")

    @property
    def denial(self) -> str | None:
        """The reason of a denial, perhaps empty; None if it does not deny."""
        if self.proceeds and self.decision != "block" and self.of_event.permission_decision != "deny":
            return None
        return self.of_event.permission_decision_reason or self.reason or self.stop_reason


@dataclass(frozen=True, kw_only=True, eq=False)
class Hook:
    name: str
    """For records and for the model."""
    event: HookEvent
    run: Callable[[Arguments], Awaitable[object]]
    """Gets the input; returns the output as JSON, None for an empty one. Raises: Denied: it blocks."""
    timeout: float
    """Seconds."""
    rules: tuple[Rule, ...] = ()
    """It is about the calls that one of them matches; without rules, about every call."""

    def is_about(self, request: Request) -> bool:
        subjects = request.subjects or (("",),)
        about = [rule for rule in self.rules for tool in request.tools if rule.covers(tool, request.needs)]
        return not self.rules or any(rule.touches(one) for rule in about for one in subjects)

    async def output(self, given: Arguments) -> HookOutput | None:
        """Run it; returns None if it failed, which is logged."""
        try:
            with anyio.fail_after(self.timeout):
                found = await self.run({"hook_event_name": self.event, **given})
            output = HookOutput.model_validate({} if found is None else found)
            if output.of_event.hook_event_name not in (None, self.event):
                raise ValueError("its output is that of another event")
        except Denied as denied:
            return HookOutput(decision="block", reason=str(denied))
        except Exception as error:
            # It may be another package's code, whose traceback says more.
            is_bug = not isinstance(error, (ToolError, TimeoutError))
            said = str(error) or type(error).__name__
            log.error("%s failed, call %s: %s", self.name, given["tool_use_id"], said, exc_info=is_bug)
            return None
        return output


@dataclass(kw_only=True, eq=False)
class HookedCall:
    """What hooks made of one call so far."""

    hooks: Sequence[Hook] = ()
    """Those that are about the call."""
    given: Arguments = field(default_factory=Arguments)
    """Their input, without the event."""
    changed_by: tuple[Hook, ...] = ()
    decided: tuple[str, ...] = ()
    """The names of those that denied, asked or changed."""
    asks: tuple[str, ...] = ()
    """Why hooks have the user asked."""
    question: str = ""
    """Why the user is asked, with the reasons of the policy; empty if not."""
    notes: tuple[str, ...] = ()
    """For the end of the answer."""

    def of(self, event: HookEvent) -> Iterator[Hook]:
        return (hook for hook in self.hooks if hook.event == event)

    async def before(self) -> Arguments | None:
        """Run the hooks of PreToolUse in order; returns the arguments of a changed call, which has to be
        decided anew, and then seen by all of them again.

        Each may change a call once. What it would change in its own result is left out.

        Raises:
            Denied: by a hook, or because one failed.
        """
        for hook in self.of("PreToolUse"):
            output = await hook.output(self.given)
            why = _FAILED if output is None else output.denial
            if output is None or why is not None:
                self.decided = _with(self.decided, hook.name)
                raise Denied(f"{hook.name} denies this call of {self.given['tool_name']}. {why}".rstrip())
            given, changed = output.of_event, output.of_event.updated_input
            self.notes = _with(self.notes, given.additional_context)
            if given.permission_decision == "ask":
                self.decided = _with(self.decided, hook.name)
                self.asks = _with(self.asks, given.permission_decision_reason or f"{hook.name} wants it so.")
            if changed in (None, self.given["tool_input"]) or self.changed_by[-1:] == (hook,):
                continue
            self.decided = _with(self.decided, hook.name)
            if hook in self.changed_by:
                raise Denied(
                    f"{hook.name} and others change this call in turn. Tell the user: it cannot run."
                )
            self.changed_by = (*self.changed_by, hook)
            return changed
        return None

    async def around(self, running: Awaitable[T]) -> T:
        """Await the call, then run the hooks of its end."""
        try:
            found = await running
        except InputRequired:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, ToolError) else f"internal: {type(error).__name__}"
            await self._after("PostToolUseFailure", {"error": why})
            raise
        await self._after("PostToolUse", {"tool_response": found.text})
        return found

    async def _after(self, event: HookEvent, more: Arguments) -> None:
        for hook in self.of(event):
            if (output := await hook.output({**self.given, **more})) is None:
                self.notes = _with(self.notes, f"{hook.name}: it failed; the result is as it was")
                continue
            if (why := output.denial) is not None:
                self.notes = _with(self.notes, f"{hook.name}: {why or 'it objects'}")
            self.notes = _with(self.notes, output.of_event.additional_context)


_FAILED = "It failed, and no call runs unchecked. Tell the user that the server's log has the details."


def _with(texts: tuple[str, ...], text: str) -> tuple[str, ...]:
    """`texts` with one more, unless it is empty or there."""
    return texts if not text or text in texts else (*texts, text)
