"""Describes in one line for clients and models what enforces the permission mode on this machine."""

from dataclasses import dataclass
from typing import Literal

Layer = Literal["bubblewrap", "landlock", "seatbelt", "none"]

LONGEST = 200
"""Characters of a summary."""

FULL = "danger-full-access"


@dataclass(frozen=True, kw_only=True)
class Enforcement:
    """Which layer holds what."""

    mode: str
    """As the flag spells it."""
    openat2: bool
    """Whether the kernel keeps paths in the roots; otherwise a walk of our own does."""
    server: int | Literal["seatbelt"]
    """What confines the server's own process: the version of Landlock, 0 for nothing, or Seatbelt."""
    commands: Layer
    filtered: bool = True
    """Whether system calls are filtered."""


def summary(facts: Enforcement) -> str:
    """Describe the mode and what enforces it in one line of at most `LONGEST` characters."""
    paths = "openat2" if facts.openat2 else "a path walk"
    if facts.mode == FULL:
        return f"{facts.mode}: commands run unconfined; file tools are kept in the roots by {paths}"
    bubblewrap = "bubblewrap + seccomp" if facts.filtered else "bubblewrap without seccomp, degraded"
    commands = {
        "bubblewrap": bubblewrap,
        "landlock": "Landlock + seccomp, degraded",
        "seatbelt": "Seatbelt",
        "none": "refused",
    }[facts.commands]
    landlock = f"Landlock {facts.server} {'+ seccomp' if facts.filtered else 'alone'}"
    server = {"seatbelt": "Seatbelt", 0: "nothing"}.get(facts.server, landlock)
    return f"{facts.mode}, enforced by {paths}, {server} (server), {commands} (commands)"
