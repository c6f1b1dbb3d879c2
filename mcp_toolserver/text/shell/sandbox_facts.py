"""Says for the description of a tool what its commands can do on this host."""

from mcp_toolserver.capabilities.permissions import HostFacts, Permission


def sandbox_facts(host: HostFacts) -> str:
    """Return the facts as one paragraph that starts with "Sandbox:"; only what applies to the host."""
    if host.is_unconfined:
        return "Sandbox: none. Commands have all rights of the user who started the server."
    return f"Sandbox: {_writes(host)} {_temporary(host)} {_network(host)}"


def _writes(host: HostFacts) -> str:
    if host.mode is Permission.READ_ONLY:
        return "commands write nothing outside $TMPDIR."
    git = "" if host.git_writable else ".git and "
    return (
        f"commands write only in the roots and $TMPDIR; {git}files that editors, shells and agents start "
        "from are read-only."
    )


def _temporary(host: HostFacts) -> str:
    if host.shares_tmp:
        return "$TMPDIR is /tmp and lasts for the session."
    return "$TMPDIR is new and empty for each command."


def _network(host: HostFacts) -> str:
    if host.is_networked:
        return "The network is open."
    if host.shares_loopback:
        return (
            "No network but localhost, which the session shares: a server started in the background answers "
            "later commands."
        )
    if host.command_sandbox == "bubblewrap":
        return "No network but a localhost of its own for each command."
    return "No network, not even localhost."
