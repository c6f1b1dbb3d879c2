"""`upstream`: lists the servers behind the gateway, shows which definitions wait, and approves them."""

import sys

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.gateway.definitions import difference
from mcp_toolserver.stores.pins import Pins, Record, pinned_servers


def upstream(state: str, invocation: Invocation) -> int:
    """Run the command; exit status 1 if there are differences (`diff`), or they are not approved.

    Raises:
        SettingsError: there is no such server, or its pins cannot be read or written.
    """
    names = pinned_servers(state)
    if invocation.what == "list":
        for name in names:
            record = _record(state, name)
            waiting = sum(len(definitions) for definitions in record.waiting.values())
            print(f"{name}: {len(record.approved.get('tools', {}))} approved, {waiting} waiting")
        return 0
    if invocation.server not in names:
        raise SettingsError(f"name a server; known are: {', '.join(names) or 'none'}")
    record = _record(state, invocation.server)
    changes = [
        difference(name, record.approved.get(kind, {}).get(name), definition)
        for kind, waiting in record.waiting.items()
        for name, definition in waiting.items()
    ]
    print("\n\n".join(changes) or "Nothing waits for approval.")
    if invocation.what == "diff" or not changes:
        return int(bool(changes))
    if not invocation.yes and not _confirmed():
        return 1
    try:
        Pins(state, invocation.server).approve(record.waiting)
    except OSError as error:
        raise SettingsError(f"the pins cannot be written: {error.strerror or error}") from None
    print(f"Approved. Clients see it when they list the tools of {invocation.server} again.")
    return 0


def _record(state: str, name: str) -> Record:
    return Pins(state, name).load() or Record()


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        print("Nothing is approved: add --yes, or answer on a terminal.")
        return False
    return input("Approve what is shown? [y/N] ").strip().lower() in ("y", "yes")
