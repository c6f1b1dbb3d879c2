"""Servers with agents that the tests of a worker share, because each starts a broker and imports a model's
library."""

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.executables import HostExecutables
from tests.agents.agents import Agents, agents
from tests.git.hostile_git import GIT
from tests.search.searching import RIPGREP

Started = Callable[[Permission], Awaitable[Agents]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Started]:
    """A server for each mode, started when it is first asked for."""
    servers: dict[Permission, Agents] = {}
    found = HostExecutables(ripgrep=RIPGREP, git=GIT)
    async with AsyncExitStack() as stack:

        async def server(mode: Permission) -> Agents:
            if mode not in servers:
                made = agents(tmp_path_factory.mktemp("agents"), {}, mode, found=found)
                servers[mode] = await stack.enter_async_context(made)
            return servers[mode].plays({})

        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def at(started: Started) -> Agents:
    """A server in workspace-write. Its tests are marked `asyncio(loop_scope="session")`."""
    return await started(Permission.WORKSPACE_WRITE)


@pytest_asyncio.fixture(loop_scope="session")
async def full(started: Started) -> Agents:
    """A server in danger-full-access, whose programs no sandbox ends."""
    return await started(Permission.DANGER_FULL_ACCESS)


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """What a turn of the model waits for; set when the test ends."""
    made = threading.Event()
    yield made
    made.set()
