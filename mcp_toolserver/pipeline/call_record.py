"""What is written down of a call, and by whom."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import JsonValue

from mcp_toolserver.capabilities.prices import Capability, Permission

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
class Call:
    """One call. The stages of the dispatcher add to it what they find out."""

    name: str
    """As the caller spelt it."""
    session: str
    """What the caller calls itself."""
    arguments: Mapping[str, JsonValue]
    """As they were sent."""
    id: str = field(default_factory=new_id)
    """Found again in the log, the audit log, the span and the answer."""
    patient: bool = False
    """See `Scope.patient`."""
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

    def begin(self, call: Call) -> str | None:
        """Take notice of a call; or why it must not run because it could not be recorded, for the caller."""
        ...

    def end(self, call: Call) -> str | None:
        """Write down a call that has ended; or why its answer is withheld, in words for the caller."""
        ...


class Witnessed:
    """Implements `Recorder`: the one that keeps the line, if any, and those who are told of each call."""

    def __init__(self, *, recorder: Recorder | None, witnesses: tuple[Callable[[Call], None], ...]) -> None:
        self._recorder = recorder
        self._witnesses = witnesses

    def begin(self, call: Call) -> str | None:
        """See `Recorder.begin`."""
        return None if self._recorder is None else self._recorder.begin(call)

    def end(self, call: Call) -> str | None:
        """See `Recorder.end`. The line is kept first."""
        why = None if self._recorder is None else self._recorder.end(call)
        for witness in self._witnesses:
            witness(call)
        return why
