"""The tools that plan and talk, on a host with all that they need."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.capabilities.kept import Preference
from mcp_toolserver.capabilities.prices import PRICES, Capability, Prices
from mcp_toolserver.dispatch import Dispatcher, Result
from mcp_toolserver.runtime.grant import Machine
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.preferences import StoredPreferences
from mcp_toolserver.stores.todos import StoredTodos
from tests.workbench import FILE_PRICES, Person, dispatcher, machine

OWN_PRICES: Prices = {
    **FILE_PRICES,
    **{
        need: PRICES[need]
        for need in (
            Capability.CLOCK,
            Capability.ASK,
            Capability.TELL,
            Capability.TODOS,
            Capability.PREFERENCES,
        )
    },
}

DECIDED: dict[str, Preference] = {"permissions.defaultMode": "workspace-write"}


def database(folder: Path) -> Database:
    """The file of the workspace `folder/root`; whoever opens it again finds what was there."""
    return Database(str(folder / "state"), [str(folder / "root")])


def host(folder: Path, stored: Database | None = None, *, kept: int = 1_000) -> Machine:
    """This machine with its clock and a state of its own."""
    stored = stored or database(folder)
    return replace(
        machine(folder, OWN_PRICES),
        todos=StoredTodos(stored, kept=kept),
        preferences=StoredPreferences(stored, DECIDED),
    )


def planner(folder: Path, stored: Database | None = None, *, kept: int = 1_000) -> Dispatcher:
    """All the real tools, on such a host."""
    return dispatcher(host(folder, stored, kept=kept))


async def call(server: Dispatcher, name: str, person: Person | None = None, **arguments: Any) -> Result:
    """A call that must come back."""
    with anyio.fail_after(20):
        return await server.call(name, arguments, person or Person())
