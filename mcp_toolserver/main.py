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
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from mcp_toolserver import confine
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.found_programs import Found, find
from mcp_toolserver.runtime.platforms import shortcoming
from mcp_toolserver.settings import Action, Invocation, Settings, load

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

NO_ROOT = "no folder to work in: give --root DIR, or set MCP_TOOLSERVER_ROOT"


def main() -> NoReturn:
    """The `mcp-toolserver` script. Exit status 2: the settings are wrong."""
    try:
        status = _run(load(sys.argv[1:], os.environ))
    except SettingsError as error:
        sys.stderr.write(f"mcp-toolserver: {error}\n")
        status = 2
    except KeyboardInterrupt:
        # Only while starting: from then on a signal is waited for.
        status = INTERRUPTED
    leave(status)


def leave(status: int) -> NoReturn:
    """End at once: everything is closed by now, and taking the interpreter apart would cost 0.3 s."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(invocation: Invocation) -> int:
    settings = invocation.settings
    if lacking := shortcoming():
        raise SettingsError(lacking)
    _check(settings, needs_root=invocation.action in ("serve", "call"))
    found = find(os.environ.get("PATH", "").split(os.pathsep), settings.root)
    broker = None if invocation.action in ("demo", "log") else _broker(settings, found)
    _log(settings.log_level.upper(), as_json=settings.log_format == "json")
    # The handshake era uses features that the SDK says it will drop; that is for us to know, not the user.
    warnings.filterwarnings("ignore", module=r"mcp(_types)?\b")
    return _ACTIONS[invocation.action](invocation, broker, found)


def _log(level: str, *, as_json: bool) -> None:
    """Our own words at `level`; what libraries say of messages, which holds arguments, stays out."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    if as_json:
        from mcp_toolserver.observe.lines import JsonLines

        logging.captureWarnings(capture=True)
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    logging.getLogger("mcp_toolserver").setLevel(level)


@contextmanager
def _beginning(settings: Settings) -> Generator[None]:
    """Where a process imports what it consists of."""
    # Nothing made while importing is ever garbage; looking for it costs a tenth of the start.
    gc.disable()
    if settings.transport == "stdio":
        from mcp_toolserver.protocol import lean_sdk

        lean_sdk.load()
    yield
    gc.freeze()
    gc.enable()


def _serve(invocation: Invocation, broker: Broker | None, found: Found) -> int:
    with _beginning(invocation.settings):
        from mcp_toolserver.assembly import assemble
        from mcp_toolserver.serving import open_door, serve

        door = open_door(invocation.settings)
        held_by = _lock(invocation.settings, broker)
        flush = _export()
        assembly = assemble(invocation.settings, broker, found, held_by=held_by)

    def end(status: int) -> NoReturn:
        flush()
        leave(status)

    end(serve(assembly, door, end))


def _export() -> Callable[[], None]:
    """Set telemetry up, if the operator asks for it. What sends the rest of it at the end."""
    if not any(name.startswith("OTEL_") for name in os.environ):
        return lambda: None
    from mcp_toolserver.observe.exporting import start

    return start(os.environ)


def _tools(invocation: Invocation, broker: Broker | None, found: Found) -> int:
    with _beginning(invocation.settings):
        from mcp_toolserver.assembly import assemble
        from mcp_toolserver.commands.catalogue import tools

        assembly = assemble(invocation.settings, broker, found, held_by=None)
    return tools(assembly.dispatcher, invocation.format)


def _call(invocation: Invocation, broker: Broker | None, found: Found) -> int:
    with _beginning(invocation.settings):
        from mcp_toolserver.assembly import assemble
        from mcp_toolserver.commands.call import call

        assembly = assemble(invocation.settings, broker, found, held_by=_lock(invocation.settings, broker))
    return call(assembly, invocation)


def _doctor(invocation: Invocation, broker: Broker | None, found: Found) -> int:
    from mcp_toolserver.commands.doctor import doctor

    return doctor(invocation.settings, broker, found, as_json=invocation.json)


def _demo(invocation: Invocation, _: Broker | None, __: Found) -> int:
    from mcp_toolserver.commands.demo import demo

    return demo(invocation.settings.root[0] if invocation.settings.root else os.getcwd())


def _log_command(invocation: Invocation, _: Broker | None, __: Found) -> int:
    from mcp_toolserver.commands.log import log
    from mcp_toolserver.stores.folder import state_folder

    state = state_folder(invocation.settings.state_dir)
    return log(state, follow=invocation.follow, verify=invocation.verify, as_json=invocation.json)


_ACTIONS: Mapping[Action, Callable[[Invocation, Broker | None, Found], int]] = {
    "serve": _serve,
    "tools": _tools,
    "call": _call,
    "doctor": _doctor,
    "log": _log_command,
    "demo": _demo,
}
"""Each imports what it needs, and only that: a client waits for `serve`."""


def _check(settings: Settings, *, needs_root: bool) -> None:
    if needs_root and not settings.root:
        raise SettingsError(NO_ROOT)
    confine.check(settings)


def _broker(settings: Settings, found: Found) -> Broker | None:
    """None where the platform has none; what needs one is then not offered."""
    try:
        return Broker.start(confine.charter(settings, found))
    except Unavailable:
        return None
    except RuntimeError as error:
        raise SettingsError(f"the server cannot start safely: {error}") from None


def _lock(settings: Settings, broker: Broker | None) -> int:
    """Let the kernel hold the mode from here on, before anything of a client is read; see `lock_server`."""
    proof = broker.proof if broker else None
    confine.require_walls(settings, proof)
    return confine.lock_server(settings)
