"""Start-up: read the settings, fork the broker, put the parts together, serve, leave.

The order matters. The broker is forked before anything large is imported, from a process with one thread, so
this module imports only the standard library and light modules of ours at the top. It alone reads the
environment.
"""

import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import NoReturn

from mcp_toolserver.capabilities import Permission
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.runtime.broker import Broker, Charter
from mcp_toolserver.runtime.sandbox.environment import command_environment
from mcp_toolserver.runtime.search_programs import find_ripgrep, helpers
from mcp_toolserver.settings import Action, Invocation, Settings, load

NO_ROOT = "no folder to work in: give --root DIR, or set MCP_TOOLSERVER_ROOT"


def main() -> NoReturn:
    """The `mcp-toolserver` script. Exit status 2: the settings are wrong."""
    try:
        status = _run(load(sys.argv[1:], os.environ))
    except SettingsError as error:
        sys.stderr.write(f"mcp-toolserver: {error}\n")
        status = 2
    leave(status)


def leave(status: int) -> NoReturn:
    """End at once: everything is closed by now, and taking the interpreter apart would cost 0.3 s."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(invocation: Invocation) -> int:
    settings = invocation.settings
    _check(settings, needs_root=invocation.action in ("serve", "call"))
    ripgrep = find_ripgrep(os.environ.get("PATH", "").split(os.pathsep))
    broker = None if invocation.action == "demo" else _broker(settings, ripgrep)
    _log(settings.log_level.upper())
    # The handshake era uses features that the SDK says it will drop; that is for us to know, not the user.
    warnings.filterwarnings("ignore", module=r"mcp(_types)?\b")
    return _ACTIONS[invocation.action](invocation, broker, ripgrep)


def _log(level: str) -> None:
    """Our own words at `level`; what libraries say of messages, which holds arguments, stays out."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("mcp_toolserver").setLevel(level)


def _serve(invocation: Invocation, broker: Broker | None, ripgrep: str | None) -> int:
    # Nothing made while importing is ever garbage; looking for it costs a tenth of the start.
    gc.disable()
    from mcp_toolserver.assembly import assemble, serve

    assembly = assemble(invocation.settings, broker, ripgrep)
    gc.freeze()
    gc.enable()
    return serve(assembly, leave)


def _tools(invocation: Invocation, broker: Broker | None, ripgrep: str | None) -> int:
    from mcp_toolserver.assembly import assemble
    from mcp_toolserver.commands.catalogue import tools

    return tools(assemble(invocation.settings, broker, ripgrep).dispatcher, invocation.format)


def _call(invocation: Invocation, broker: Broker | None, ripgrep: str | None) -> int:
    from mcp_toolserver.assembly import assemble
    from mcp_toolserver.commands.call import call

    return call(assemble(invocation.settings, broker, ripgrep), invocation)


def _doctor(invocation: Invocation, broker: Broker | None, ripgrep: str | None) -> int:
    from mcp_toolserver.commands.doctor import doctor

    return doctor(invocation.settings, broker, ripgrep, as_json=invocation.json)


def _demo(invocation: Invocation, _: Broker | None, __: str | None) -> int:
    from mcp_toolserver.commands.demo import demo

    return demo(invocation.settings.root[0] if invocation.settings.root else os.getcwd())


_ACTIONS: Mapping[Action, Callable[[Invocation, Broker | None, str | None], int]] = {
    "serve": _serve,
    "tools": _tools,
    "call": _call,
    "doctor": _doctor,
    "demo": _demo,
}
"""Each imports what it needs, and only that: a client waits for `serve`."""


def _check(settings: Settings, *, needs_root: bool) -> None:
    """What this version cannot keep, it does not promise."""
    if needs_root and not settings.root:
        raise SettingsError(NO_ROOT)
    if settings.sandbox == "required":
        raise SettingsError("--sandbox required: this version has no walls for commands; use auto or off")
    if settings.network == "none" and settings.permission_mode is Permission.DANGER_FULL_ACCESS:
        raise SettingsError(
            "--network none cannot be kept in danger-full-access, where commands run without walls; "
            "use --permission-mode read-only or workspace-write"
        )


def _broker(settings: Settings, ripgrep: str | None) -> Broker | None:
    """None where the platform has none; what needs one is then not offered."""
    charter = Charter(
        mode=settings.permission_mode.flag,
        environment=command_environment(os.environ, settings.command_environment),
        helpers=helpers(ripgrep),
    )
    try:
        return Broker.start(charter)
    except Unavailable:
        return None
