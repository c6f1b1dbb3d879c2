"""Two sessions of one server over HTTP, and who holds what the commands of a session share."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import Implementation

from tests.support import live
from tests.support.confinement import READ_ONLY, USERS, WORKSPACE_WRITE

PAIRS = ((USERS[0], READ_ONLY), (USERS[-1], WORKSPACE_WRITE))
"""Each user and each mode, where nothing depends on the pair of them."""

_EACH_PAIR = [pytest.param(*one, id="-".join(one), marks=pytest.mark.xdist_group(one[0])) for one in PAIRS]

each_once = pytest.mark.parametrize(("user", "mode"), _EACH_PAIR)
as_root = pytest.mark.parametrize(("user", "mode"), _EACH_PAIR[:1])
"""For what depends on neither: on the first pair alone."""


@asynccontextmanager
async def two_sessions(url: str, era: str) -> AsyncGenerator[tuple[Client, Client]]:
    """Two clients with one token. Without a handshake, the name is all that tells them apart."""
    first, second = (Implementation(name=f"{name}-{era}", version="1") for name in ("first", "second"))
    async with (
        live.connected_to(url, "http", mode=era, client_info=first) as one,
        live.connected_to(url, "http", mode=era, client_info=second) as other,
    ):
        yield one, other


async def called(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's answer."""
    return live.text(await client.call_tool(tool, arguments))


def holders(is_it: Callable[[str], bool]) -> list[str]:
    """The processes that hold something open, by what its link in /proc leads to."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            links = [os.readlink(link) for link in (place / "fd").iterdir()]
            found += [place.name for link in links if is_it(link)]
    return found
