"""The record of a call, and the interface of what stores it."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import ROOM, Room
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.hooks import HookedCall
from mcp_toolserver.policy.rules import Verdict as Decision

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
    "refused-hook",
    "asked",
    "asked-no",
    "asked-yes",
    "allowed",
    "dry-run",
]
"""How far a call came: no such tool; rejected for its arguments, a path outside the roots, a tool that is
off, a rule, the permission mode, the check of dangerous commands or a hook; asked; run; or decided only."""


def new_id() -> str:
    """Return an id for a call without one."""
    return secrets.token_hex(8)


@dataclass(kw_only=True, eq=False)
class CallRecord:
    """One call. Each stage of the dispatcher fills in its fields."""

    name: str
    """The name as the caller sent it."""
    session: str
    """The name that the client gives itself."""
    arguments: Mapping[str, JsonValue]
    """The arguments as the caller sent them."""
    user: str = ""
    """The name whose token the client has; empty without named tokens."""
    id: str = field(default_factory=new_id)
    """The id of the call in the log, the audit log, the span and the result."""
    parent_id: str = ""
    """The id of the call, task or schedule for which this one is made; empty if a client makes it."""
    seconds_to_answer: float | None = None
    """See `Scope.seconds_to_answer`."""
    room: Room = ROOM
    tool: str = ""
    """The canonical name."""
    needs: frozenset[Capability] = field(default_factory=frozenset[Capability])
    about: tuple[str, ...] = ()
    """The paths, commands or addresses that it touches, as they were sent."""
    permission: Permission | None = None
    """The permission that the call needs on this host."""
    mode: str = ""
    """The permission mode of this call, if it may be below that of the server."""
    verdict: Verdict = "unknown"
    rule: str = ""
    """The rule that decided, as it was written, and the hooks that denied, asked or changed."""
    hooked: HookedCall = field(default_factory=HookedCall)
    decision: Decision | None = None
    """What the policy decided."""
    is_trial: bool = False
    """Whether the call is decided only: nobody is asked, and nothing runs."""
    outcome: str = "unknown_tool"
    """`output`, the kind of error, `pending`, `cancelled` or `unknown_tool`."""
    text: str = ""
    """The text of the result, as sent."""
    duration_ms: float = 0.0


class Recorder(Protocol):
    """Stores one entry for every call. If it cannot, no call may run."""

    async def begin(self, call: CallRecord) -> str | None:
        """Announce a call; returns why it must not run, as text for the caller, if it cannot be recorded."""
        ...

    async def end(self, call: CallRecord) -> str | None:
        """Record a call that ended; returns why its result is withheld, as text for the caller, on
        failure."""
        ...


CallObserver = Callable[[CallRecord], None]
"""Gets a call that ended; it records nothing."""


async def begin(recorder: Recorder | None, call: CallRecord) -> str | None:
    """Announce the call to the recorder; returns why it must not run, or None."""
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


async def end(recorder: Recorder | None, observers: Sequence[CallObserver], call: CallRecord) -> str | None:
    """Record the call, then pass it to the observers; returns why its result is withheld, or None."""
    why = None
    try:
        why = None if recorder is None else await recorder.end(call)
    except Exception:
        log.exception("the recorder failed; reference %s", call.id)
        why = (
            "The call has ended, but the server failed to record it, so its answer is withheld. What it "
            f"changed stays changed. The server's log has the details under {call.id}."
        )
    for observer in observers:
        try:
            observer(call)
        except Exception:
            # An observer may be another package's code; its failure must not lose the result.
            log.exception("an observer of calls failed; reference %s", call.id)
    return why
