"""The tools that plan and talk, on a host with all that they need."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import mcp_types as mcp

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.host_services import HostServices
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.stored import OwnerTodos, StoredPreferences, StoredTodos
from tests.support.workbench import Person, call, dispatcher, machine, required, with_services

PERMISSIONS = required(
    Capability.FS_READ,
    Capability.FS_WRITE,
    Capability.CLOCK,
    Capability.ASK,
    Capability.TELL,
    Capability.TODOS,
    Capability.PREFERENCES,
)

DECIDED: dict[str, str] = {"permissions.defaultMode": "workspace-write"}


def database(folder: Path) -> Database:
    """The file of the workspace `folder/root`; whoever opens it again finds what was there."""
    return Database(str(folder / "state"), [str(folder / "root")])


def host(folder: Path, stored: Database | None = None, *, kept: int = 1_000) -> HostServices:
    """This machine with its clock and a state of its own."""
    stored = stored or database(folder)
    todos, preferences = StoredTodos(stored, kept=kept), StoredPreferences(stored, DECIDED)
    return with_services(
        machine(folder),
        PERMISSIONS,
        {
            Capability.TODOS: lambda request: OwnerTodos(todos, request.scope.owner),
            Capability.PREFERENCES: lambda _: preferences,
        },
    )


def planner(folder: Path, stored: Database | None = None, *, kept: int = 1_000) -> Dispatcher:
    """All the real tools, on such a host."""
    return dispatcher(host(folder, stored, kept=kept))


async def refused_each(
    server: Dispatcher,
    name: str,
    wrong: Iterable[tuple[Mapping[str, Any], str]],
    person: Person | None = None,
) -> None:
    """Calls with each of these arguments are invalid, and the errors say so."""
    for arguments, says in wrong:
        result = await call(server, name, person, **arguments)
        assert (result.error, says in result.text) == ("invalid_input", True), (arguments, result.text)


class Human:
    """The person behind a client: gives the answers in turn, the last one for good, and remembers the forms.

    An answer in words is that to the first question; None is to decline."""

    def __init__(self, *says: dict[str, Any] | mcp.ElicitResult | str | None) -> None:
        self.says: list[dict[str, Any] | mcp.ElicitResult | str | None] = list(says)
        self.saw: list[mcp.ElicitRequestFormParams] = []

    async def __call__(self, _: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        assert isinstance(params, mcp.ElicitRequestFormParams)
        self.saw.append(params)
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, mcp.ElicitResult):
            return said
        content: dict[str, Any] | None = {"answer_1": said} if isinstance(said, str) else said
        return mcp.ElicitResult(action="decline" if content is None else "accept", content=content)
