"""What is written down of a call, and by whom."""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, Permission

log = logging.getLogger(__name__)

Verdict = Literal[
    "unknown",
    "undecided",
    "invalid",
    "refused-path",
    "refused-off",
    "refused-rule",
    "refused-ceiling",
    "refused-watchdog",
    "asked",
    "asked-no",
    "asked-yes",
    "allowed",
]
"""How far a call came: there is no such tool; its arguments, a path outside the roots, the operator, a rule,
the permission mode or the watchdog kept it from running; a human was asked; it ran."""


def new_id() -> str:
    """An id for a call whose caller gave it none."""
    return secrets.token_hex(8)


@dataclass(kw_only=True, eq=False)
class CallRecord:
    """One call. The stages of the dispatcher add to it what they find out."""

    name: str
    """As the caller spelt it."""
    session: str
    """What the caller calls itself."""
    arguments: Mapping[str, JsonValue]
    """As they were sent."""
    id: str = field(default_factory=new_id)
    """Found again in the log, the audit log, the span and the answer."""
    wait_until_done: bool = False
    """See `Scope.wait_until_done`."""
    tool: str = ""
    """The canonical name."""
    needs: frozenset[Capability] = field(default_factory=frozenset[Capability])
    permission: Permission | None = None
    """What the call needs on this host."""
    mode: str = ""
    """The permission mode of this call, where its client confines it further than the server does."""
    verdict: Verdict = "unknown"
    rule: str = ""
    """The rule that decided, as the operator wrote it."""
    outcome: str = "unknown_tool"
    """`output`, the kind of error, `pending`, `cancelled` or `unknown_tool`."""
    text: str = ""
    """The answer, as it was sent."""
    duration_ms: float = 0.0


class Recorder(Protocol):
    """Keeps one line of every call. Where it cannot, no call may run."""

    async def begin(self, call: CallRecord) -> str | None:
        """Take notice of a call; or why it must not run because it could not be recorded, for the caller."""
        ...

    async def end(self, call: CallRecord) -> str | None:
        """Write down a call that has ended; or why its answer is withheld, in words for the caller."""
        ...


class CompositeRecorder:
    """Implements `Recorder`: records each call with `recorder`, if any, and passes it to the observers."""

    def __init__(
        self, *, recorder: Recorder | None, observers: tuple[Callable[[CallRecord], None], ...]
    ) -> None:
        self._recorder = recorder
        self._observers = observers

    async def begin(self, call: CallRecord) -> str | None:
        """See `Recorder.begin`."""
        return None if self._recorder is None else await self._recorder.begin(call)

    async def end(self, call: CallRecord) -> str | None:
        """See `Recorder.end`. The line is kept first; a witness that fails is logged, and the rest follow."""
        why = None if self._recorder is None else await self._recorder.end(call)
        for observer in self._observers:
            try:
                observer(call)
            except Exception:
                # An observer must not cost the caller the answer; it may be another package's code.
                log.exception("an observer of calls failed; reference %s", call.id)
        return why


async def begin(recorder: Recorder | None, call: CallRecord) -> str | None:
    """Announce the call to the recorder; or why it must not run."""
    if recorder is None:
        return None
    try:
        return await recorder.begin(call)
    except Exception:
        log.exception("the recorder failed; reference %s", call.id)
        return (
            "The server failed to record this call, and no call runs unrecorded. "
            f"The server's log has the details under {call.id}."
        )


async def end(recorder: Recorder | None, call: CallRecord) -> str | None:
    """Have the call recorded; or why its answer is withheld."""
    if recorder is None:
        return None
    try:
        return await recorder.end(call)
    except Exception:
        log.exception("the recorder failed; reference %s", call.id)
        return (
            "The call has ended, but the server failed to record it, so its answer is withheld. What it "
            f"changed stays changed. The server's log has the details under {call.id}."
        )
