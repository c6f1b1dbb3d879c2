"""Describes in one line for clients and models what enforces the permission mode on this machine."""

from mcp_toolserver.capabilities.permissions import HostFacts

LONGEST = 200
"""Characters of a summary."""


def summary(facts: HostFacts) -> str:
    """Describe the mode and what enforces it in one line of at most `LONGEST` characters."""
    paths = "openat2" if facts.openat2 else "a path walk"
    mode, server = facts.mode.flag, facts.server_lock or 0
    if facts.is_unconfined:
        lower = facts.commands_in
        commands = (
            "run unconfined" if lower is None else f"are kept to {lower.flag} but for what a user lets out"
        )
        return f"{mode}: commands {commands}; file tools are kept in the roots by {paths}"
    bubblewrap = "bubblewrap + seccomp" if facts.filters_syscalls else "bubblewrap without seccomp, degraded"
    commands = {
        "bubblewrap": bubblewrap,
        "landlock": "Landlock + seccomp, degraded",
        "seatbelt": "Seatbelt",
        "none": "refused",
    }[facts.command_sandbox]
    landlock = f"Landlock {server} {'+ seccomp' if facts.filters_syscalls else 'alone'}"
    by = {"seatbelt": "Seatbelt", 0: "nothing"}.get(server, landlock)
    return f"{mode}, enforced by {paths}, {by} (server), {commands} (commands)"


def is_weakened(facts: HostFacts) -> bool:
    """Whether a layer is missing that enforces the mode elsewhere."""
    if facts.is_unconfined or facts.server_lock == "seatbelt":
        return False
    return not (facts.server_lock and facts.filters_syscalls) or facts.command_sandbox == "landlock"
