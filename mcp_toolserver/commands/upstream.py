"""`upstream`: lists the servers behind the gateway, shows which definitions wait, and approves them; logs in
to servers with a URL.
"""

import os
import sys
from collections.abc import Mapping
from functools import partial

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.errors import SettingsError, ToolError
from mcp_toolserver.gateway.definitions import difference
from mcp_toolserver.gateway.upstream_file import read_upstreams
from mcp_toolserver.runtime.web.options import private_places
from mcp_toolserver.stores.oauth_tokens import TokenStore
from mcp_toolserver.stores.pins import NAME, Pins, Record, pinned_servers


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


def log_in(state: str, invocation: Invocation, environ: Mapping[str, str]) -> int:
    """Log in to a server of the file through the user's browser; exit status 1 if that fails.

    Raises:
        SettingsError: there is no such server, or the file is wrong.
    """
    settings = invocation.settings
    if settings.upstreams is None:
        raise SettingsError("name the file of servers: --upstreams FILE")
    every = read_upstreams(settings.upstreams, environ, os.path.expanduser("~"))
    found = {one.name: one for one in every if one.url}
    if invocation.server not in found:
        raise SettingsError(f"name a server that has a url; there are: {', '.join(found) or 'none'}")
    # It imports the SDK, which takes most of a second.
    import anyio

    from mcp_toolserver.protocol.upstreams.oauth import Authorization

    authorization = Authorization(found[invocation.server], state, private_places(settings.web_private))
    show = partial(print, "Open this page in a browser on this machine:", sep="\n", flush=True)
    try:
        print(anyio.run(authorization.log_in, show))
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def log_out(state: str, name: str) -> int:
    """Remove the token of a server. Raises: SettingsError: it cannot be removed."""
    if not NAME.fullmatch(name):
        raise SettingsError("name a server")
    try:
        TokenStore(state=state, name=name).path.unlink()
    except FileNotFoundError:
        print("There is no token.")
    except OSError as error:
        raise SettingsError(f"the token cannot be removed: {error.strerror or error}") from None
    else:
        print(f"Removed the token of {name}; revoke it at its provider too.")
    return 0
