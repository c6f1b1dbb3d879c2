"""`cron`: runs the schedules of a workspace without a client, or lists them."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import anyio

from mcp_toolserver.app.compose import Application
from mcp_toolserver.app.schedules import Schedules
from mcp_toolserver.app.serve import Leave, run_until_shutdown, upkeep
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.cron.schedules import shown
from mcp_toolserver.stores.board import StoredBoard
from mcp_toolserver.stores.cron import StoredSchedules
from mcp_toolserver.telemetry.json_log import say
from mcp_toolserver.text.cron import listed
from mcp_toolserver.text.lines.escape_invisible import visible

if TYPE_CHECKING:
    from mcp_toolserver.protocol.http.tokens import GrantFile


def run(app: Application, grants: "GrantFile | None", leave: Leave) -> int:
    """Run schedules until a signal arrives; returns the exit status. `leave` exits at once."""

    def announce(text: str) -> None:
        say(f"mcp-toolserver cron: {text}", as_json=app.settings.log_format == "json")

    async def work(_: Callable[[], None]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upkeep, app)
            schedules = Schedules(app=app, grants=grants, adopts=True, announce=announce)
            tasks.start_soon(schedules.serve)

    announce(f"runs the schedules of {', '.join(app.roots)}; Ctrl-C ends it")
    return anyio.run(run_until_shutdown, work, app, leave)


def list_schedules(app: Application, *, as_json: bool) -> int:
    """Print the schedules of all owners; exit status 1 if they cannot be read."""
    store = StoredSchedules(StoredBoard(app.shared.database))
    try:
        found = anyio.run(partial(store.all, None))
        schedules = [(stored.owner, shown(stored, time.time())) for stored in found]
    except ToolError as error:
        print(f"mcp-toolserver cron: {error}", file=sys.stderr)
        return 1
    if as_json:
        fields = [{"owner": owner, **asdict(one)} for owner, one in schedules]
        print(json.dumps(fields, indent=2, default=lambda moment: moment.isoformat()))
    elif not schedules:
        print("There are no schedules.")
    for owner, one in () if as_json else schedules:
        print(visible(f"{listed(one)}\n  owner: {owner}\n"))
    return 0
