"""Describes in one line for clients and models what enforces the permission mode on this machine."""

from dataclasses import dataclass
from typing import Literal

Layer = Literal["bubblewrap", "landlock", "none"]

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
    landlock: int
    """The version that confines the server's own process; 0 when nothing does."""
    commands: Layer
    filtered: bool = True
    """Whether system calls are filtered."""


def summary(enforcement: Enforcement) -> str:
    """Such as "read-only, enforced by openat2, Landlock 7 + seccomp (server), ..."; at most `LONGEST`."""
    paths = "openat2" if enforcement.openat2 else "a path walk"
    if enforcement.mode == FULL:
        return f"{enforcement.mode}: commands run unconfined; file tools are kept in the roots by {paths}"
    return f"{enforcement.mode}, enforced by {paths}, {_server(enforcement)} (server), {_commands(enforcement)} (commands)"


def _server(enforcement: Enforcement) -> str:
    if not enforcement.landlock:
        return "nothing"
    return (
        f"Landlock {enforcement.landlock} + seccomp"
        if enforcement.filtered
        else f"Landlock {enforcement.landlock} alone"
    )


def _commands(enforcement: Enforcement) -> str:
    words: dict[Layer, str] = {
        "bubblewrap": "bubblewrap + seccomp"
        if enforcement.filtered
        else "bubblewrap without seccomp, degraded",
        "landlock": "Landlock + seccomp, degraded",
        "none": "refused",
    }
    return words[enforcement.commands]
