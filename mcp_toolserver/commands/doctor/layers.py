"""Describes which layer enforces what in each mode. Pure functions."""

from collections.abc import Mapping
from typing import Literal

from mcp_toolserver.commands.doctor.facts import FULL, READ_ONLY, Facts
from mcp_toolserver.runtime.sandbox.layers.spec import Layer
from mcp_toolserver.text.enforcement_summary import Enforcement, summary

FIRST_ABI_WITH_SCOPES = 6

Standing = Literal["holds", "degraded", "missing", "note"]
"""Enforced; enforced more weakly; missing although the mode requires it; for information."""


def enforcement(facts: Facts, mode: str) -> Enforcement:
    """The enforcement in `mode`, for the summary."""
    confined = mode != FULL
    return Enforcement(
        mode=mode,
        openat2=facts.openat2,
        server=facts.servers[mode].layer if confined and facts.servers[mode].holds else 0,
        commands=facts.proofs[mode].commands if confined else "none",
        filtered=not facts.filters,
    )


def layers(facts: Facts, mode: str) -> Mapping[str, str]:
    """By what is held, what holds it."""
    return {
        "summary": summary(enforcement(facts, mode)),
        "file tools": _file_tools(facts, mode),
        "server process": _server(facts, mode),
        "commands": _commands(facts, mode),
        "searches": _searches(facts, mode),
        "network": _network(facts, mode),
        "ending": _ending(facts, mode),
    }


def _file_tools(facts: Facts, mode: str) -> str:
    by = "openat2" if facts.openat2 else "a path walk"
    return f"{by}; no tool writes" if mode == READ_ONLY else by


def _server(facts: Facts, mode: str) -> str:
    if mode == FULL:
        return "not confined"
    tried = facts.servers[mode]
    if not tried.holds:
        return f"not confined: {server_problem(facts, mode)}"
    return "Seatbelt" if tried.layer == "seatbelt" else f"Landlock {tried.layer} + seccomp"


def server_problem(facts: Facts, mode: str) -> str:
    """Why the server's own process is not held in a confined `mode`; empty when it is."""
    tried = facts.servers[mode]
    failed = "; ".join(f'"{check.name}" does not hold' for check in tried.checks if not check.held)
    return tried.problem or failed


def _commands(facts: Facts, mode: str) -> str:
    if mode == FULL:
        return "not confined" if facts.broker else "refused"
    return {"none": "refused", **_sandbox_layers(facts)}[facts.proofs[mode].commands]


def _sandbox_layers(facts: Facts) -> Mapping[Layer, str]:
    return {
        "bubblewrap": "bubblewrap alone" if facts.filters else "bubblewrap + seccomp",
        "landlock": "Landlock + seccomp",
        "seatbelt": "Seatbelt",
    }


def _searches(facts: Facts, mode: str) -> str:
    if mode == FULL:
        return "Landlock + seccomp" if facts.abi and not facts.filters else "not confined"
    return {"none": "refused", **_sandbox_layers(facts)}[facts.proofs[mode].helpers]


def _network(facts: Facts, mode: str) -> str:
    if mode == FULL or facts.network:
        return "open to commands"
    match facts.proofs[mode].commands:
        case "bubblewrap":
            return "loopback only: a namespace of its own" + ("" if facts.filters else ", seccomp")
        case "landlock":
            return "none: seccomp"
        case "seatbelt":
            return "none: Seatbelt"
        case "none":
            return "none: no command runs"


def _ending(facts: Facts, mode: str) -> str:
    """The mechanism that kills every process that a command started."""
    scopes = "signal scopes" if facts.abi >= FIRST_ABI_WITH_SCOPES else "stop and sweep"
    apart = mode != FULL and facts.proofs[mode].commands == "bubblewrap"
    if not facts.broker:
        return "no command runs"
    if facts.host.system != "Linux":
        return "process groups and a sweep; a process that hides may survive"
    return f"{scopes}, process namespace" if apart else scopes
