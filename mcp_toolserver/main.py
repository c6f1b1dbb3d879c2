"""Start-up: reads the settings, forks the broker, builds the server, serves and exits.

The broker is forked before large imports, from a process with one thread, so this module imports only the
standard library and light modules of ours at the top. Only it and `confinement` read the environment.
"""

import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from mcp_toolserver import interrupts
from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import ServerLock
from mcp_toolserver.command_line import Action, Invocation
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.invocation import load, serves_stdio
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.platform_check import unsupported_reason
from mcp_toolserver.runtime.processes.broker_client import Broker, start_broker, start_standalone_broker
from mcp_toolserver.runtime.windows_paths import find_windows_paths
from mcp_toolserver.settings import Settings

if TYPE_CHECKING:
    from mcp_toolserver.app.upstreams import UpstreamHost

INVALID_SETTINGS = 2

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells. The signal itself ends a starting server."""

NOBODY_READS = 141
"""Exit status when the reader of the output has gone, such as `head`: that of SIGPIPE in shells."""

NO_ROOT = "no folder to work in: give --root DIR, or set MCP_TOOLSERVER_ROOT"

NEXT_STEPS = """\
mcp-toolserver gives an MCP client the tools of a coding agent. The client starts it. To begin:

  mcp-toolserver setup --list    show MCP clients, and which are installed here
  mcp-toolserver setup CLIENT    add this server to one of them
  mcp-toolserver doctor          test what is enforced on this machine
  mcp-toolserver demo            show it at work in the current folder
  mcp-toolserver --help          list all commands and flags
"""


def main() -> NoReturn:
    """The `mcp-toolserver` script. Exit status 2 means invalid settings."""
    interrupts.end_at_once()
    invocation = None
    try:
        invocation = load(sys.argv[1:], os.environ)
        status = _run(invocation)
    except SettingsError as error:
        sys.stderr.write(f"mcp-toolserver: {error}\n")
        _tell_client(str(error), invocation)
        status = INVALID_SETTINGS
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        status = NOBODY_READS
    leave(status)


def _tell_client(reason: str, invocation: Invocation | None) -> None:
    """Answer the client that started this process as a server over stdio, so that its user sees `reason`.
    Without `invocation`, the command line was rejected.
    """
    if invocation is None:
        serves = serves_stdio(sys.argv[1:], os.environ)
    else:
        is_stdio = invocation.settings.transport == "stdio"
        serves = invocation.action == "wrap" or (invocation.action == "serve" and is_stdio)
    # A closed descriptor may be that of another file now.
    if not serves or sys.stdin is None or sys.stdout is None or sys.stdin.isatty():
        return
    from mcp_toolserver.protocol.stdio import start_error

    start_error.answer(reason)


def leave(status: int) -> NoReturn:
    """Exit at once: everything is closed, and the interpreter's own cleanup takes 0.3 s."""
    try:
        for stream in (sys.stdout, sys.stderr):
            # It is None where the descriptor was closed at the start.
            if stream is not None:
                stream.flush()
    except BrokenPipeError:
        status = NOBODY_READS
    os._exit(status)


def _run(invocation: Invocation) -> int:
    settings = invocation.settings
    # The event loop of a server handles signals; other commands clean up after an exception.
    if invocation.action not in ("serve", "wrap"):
        interrupts.raise_an_exception()
    if lacking := unsupported_reason():
        raise SettingsError(lacking)
    on_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if on_terminal and not (sys.argv[1:] or settings.root):
        sys.stderr.write(NEXT_STEPS)
        return INVALID_SETTINGS
    if invocation.action in ("serve", "call", "cron") and not settings.root:
        raise SettingsError(NO_ROOT)
    confinement.check(settings)
    found = confinement.host_executables(settings)
    if invocation.report:
        from mcp_toolserver.commands.doctor.doctor import write_report

        return write_report(invocation, found, lambda: _broker(settings, found))
    if invocation.hosts:
        from mcp_toolserver.commands.doctor.package_hosts import package_hosts

        return package_hosts(os.environ, settings.root)
    if invocation.check_model:
        from mcp_toolserver.commands.doctor.doctor import check_model

        return check_model(settings, as_json=invocation.json)
    run = _WITH_BROKER.get(invocation.action)
    broker = _broker(settings, found) if run else None
    _log(settings.log_level.upper(), as_json=settings.log_format == "json")
    # The handshake protocol uses features that the SDK deprecates, which users need not know.
    warnings.filterwarnings("ignore", module=r"mcp(_types)?\b")
    return run(invocation, broker, found) if run else _run_without_broker(invocation, found)


def _log(level: str, *, as_json: bool) -> None:
    """Log our own messages at `level`; libraries log only warnings, as their texts hold arguments."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    if as_json:
        from mcp_toolserver.telemetry.json_log import JsonLines

        logging.captureWarnings(capture=True)
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    logging.getLogger("mcp_toolserver").setLevel(level)


@contextmanager
def _beginning(settings: Settings) -> Generator[None]:
    """Speed up the imports of the start."""
    # Imports create no garbage, and collecting takes a tenth of the start.
    gc.disable()
    if settings.transport == "stdio":
        from mcp_toolserver.protocol.stdio import lazy_sdk

        lazy_sdk.load()
    yield
    gc.freeze()
    gc.enable()


def _serve(invocation: Invocation, broker: Broker | None, found: HostExecutables) -> int:
    upstreams = _upstreams(invocation.settings, found)
    with _beginning(invocation.settings):
        from mcp_toolserver.app.compose import build_application
        from mcp_toolserver.app.serve import bind_http, serve

        binding = bind_http(invocation.settings)
        held_by = _lock(invocation.settings, broker)
        end = _end_with_telemetry()
        windows = find_windows_paths(os.environ)
        app = build_application(
            invocation.settings, broker, found, held_by=held_by, windows=windows, upstreams=upstreams
        )
    end(serve(app, binding, end))


def _end_with_telemetry() -> Callable[[int], NoReturn]:
    """Set up telemetry if it is configured; returns the function that flushes it and exits."""
    if not any(name.startswith("OTEL_") for name in os.environ):
        return leave
    from mcp_toolserver.telemetry.otel_setup import start

    flush = start(os.environ)

    def end(status: int) -> NoReturn:
        flush()
        leave(status)

    return end


def _tools(invocation: Invocation, broker: Broker | None, found: HostExecutables) -> int:
    """Run `tools` or `call`."""
    upstreams = _upstreams(invocation.settings, found)
    with _beginning(invocation.settings):
        from mcp_toolserver.app.compose import build_application
        from mcp_toolserver.commands.tools import call, tools

        held_by = _lock(invocation.settings, broker) if invocation.action == "call" else None
        app = build_application(invocation.settings, broker, found, held_by=held_by, upstreams=upstreams)
    return call(app, invocation) if invocation.action == "call" else tools(app.dispatcher, invocation.format)


def _policy(invocation: Invocation, broker: Broker | None, found: HostExecutables) -> int:
    from mcp_toolserver.app.compose import Application, build_application
    from mcp_toolserver.commands import policy
    from mcp_toolserver.commands.tools import parsed

    brokers = [(confinement.broker_policy(invocation.settings, found), broker)]

    def build(settings: Settings) -> Application:
        confinement.check(settings)
        # Its self-test says at which level commands are offered.
        wanted = confinement.broker_policy(settings, found)
        if wanted not in [known for known, _ in brokers]:
            brokers.append((wanted, broker and start_standalone_broker(wanted)))
        one = next(one for known, one in brokers if known == wanted)
        return build_application(settings, one, found, held_by=None)

    try:
        if invocation.what == "test":
            return policy.test(invocation, build)
        return policy.explain(build(invocation.settings), invocation, parsed(invocation.arguments))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    finally:
        for _, one in brokers:
            if one is not None:
                one.close()


def _doctor(invocation: Invocation, broker: Broker | None, found: HostExecutables) -> int:
    from mcp_toolserver.commands.doctor.doctor import doctor

    return doctor(invocation, broker, found, os.environ)


def _cron(invocation: Invocation, broker: Broker | None, found: HostExecutables) -> int:
    settings = invocation.settings
    upstreams = _upstreams(settings, found)
    with _beginning(settings):
        from mcp_toolserver.app.compose import build_application
        from mcp_toolserver.app.serve import open_grants
        from mcp_toolserver.commands.cron import list_schedules, run

    if invocation.what == "run":
        grants = open_grants(settings)
        held_by = _lock(settings, broker)
        end = _end_with_telemetry()
        app = build_application(settings, broker, found, held_by=held_by, upstreams=upstreams)
        end(run(app, grants, end))
    app = build_application(settings, broker, found, held_by=None)
    return list_schedules(app, as_json=invocation.json)


def _wrap(invocation: Invocation, broker: Broker | None, found: HostExecutables) -> int:
    settings, command = invocation.settings, invocation.command
    if broker is None or not command:
        usage = "put the command of the server after --: mcp-toolserver wrap [FLAG ...] -- COMMAND [ARG ...]"
        raise SettingsError(usage if broker else f"no command can be confined on {sys.platform}")
    import anyio

    from mcp_toolserver.app.wrap import Wrapped

    wrapped = Wrapped(settings, broker, found, invocation.server, command)
    _lock(settings, broker)
    return anyio.run(wrapped.run)


_WITH_BROKER: Mapping[Action, Callable[[Invocation, Broker | None, HostExecutables], int]] = {
    "serve": _serve,
    "wrap": _wrap,
    "tools": _tools,
    "call": _tools,
    "policy": _policy,
    "doctor": _doctor,
    "cron": _cron,
}
"""Each command imports only what it needs, to keep the start of `serve` fast."""


def _run_without_broker(invocation: Invocation, found: HostExecutables) -> int:
    settings = invocation.settings
    match invocation.action:
        case "demo":
            from mcp_toolserver.commands.demo import demo

            return demo(settings.root[0] if settings.root else os.getcwd())
        case "log":
            from mcp_toolserver.commands.log import log
            from mcp_toolserver.stores.state_dir import state_folder

            return log(state_folder(settings.state_dir), invocation)
        case "history":
            from mcp_toolserver.commands.history import list_backups, restore
            from mcp_toolserver.stores.state_dir import state_folder

            state = state_folder(settings.state_dir)
            if invocation.what == "list":
                return list_backups(state, settings.root)
            return restore(state, invocation.backup, found.git)
        case "upstream" | "approvals":
            return _of_state(invocation, found)
        case "token":
            from mcp_toolserver.commands.token import token

            return token(invocation)
        case "completion":
            from mcp_toolserver.commands.completion import completion

            return completion(invocation.shell)
        case _:
            from mcp_toolserver.commands.setup.setup import setup

            return setup(invocation, os.environ)


def _of_state(invocation: Invocation, found: HostExecutables) -> int:
    """Run `upstream` or `approvals`."""
    if invocation.what == "prepare":
        from mcp_toolserver.commands.prepare import prepare

        return prepare(invocation, found, os.environ)
    from mcp_toolserver.commands.approvals import approvals
    from mcp_toolserver.commands.upstream import log_in, log_out, upstream
    from mcp_toolserver.stores.state_dir import state_folder

    state = state_folder(invocation.settings.state_dir)
    match invocation.what:
        case "login":
            return log_in(state, invocation, os.environ)
        case "logout":
            return log_out(state, invocation.server)
        case _:
            run = upstream if invocation.action == "upstream" else approvals
            return run(state, invocation)


def _broker(settings: Settings, found: HostExecutables) -> Broker | None:
    """Start the broker; None on platforms without one, where the tools that need it are unavailable."""
    try:
        return start_broker(confinement.broker_policy(settings, found))
    except Unavailable:
        return None
    except RuntimeError as error:
        raise SettingsError(f"the server cannot start safely: {error}") from None


def _upstreams(settings: Settings, found: HostExecutables) -> "Sequence[UpstreamHost]":
    """The upstream servers, whose brokers are forked here: before large imports, and before the lock."""
    if settings.upstreams is None:
        return ()
    # As in `_beginning`, which follows and enables it again.
    gc.disable()
    from mcp_toolserver.app.upstreams import start_upstreams

    return start_upstreams(settings, found, os.environ)


def _lock(settings: Settings, broker: Broker | None) -> ServerLock:
    """Lock the server process with the kernel before it reads any client data; see `lock_server`."""
    proof = broker.proof if broker else None
    confinement.require_sandbox(settings, proof)
    return confinement.lock_server(settings)
