"""A server, and its broker, that may open no more files: what callers get, and that both go on."""

import os
import re
import resource
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import contextmanager

import anyio
import pytest
import pytest_asyncio
from mcp import Client

from tests.support.confinement import FULL, WORKSPACE_WRITE
from tests.support.live import SharedServers, text
from tests.support.processes import PATIENCE, arguments, parent, processes

TOO_MANY = re.compile("too many files are open", re.IGNORECASE)


pytestmark = pytest.mark.asyncio(loop_scope="module")

Served = tuple[Client, int, int]


@pytest.fixture(scope="module", params=[pytest.param(WORKSPACE_WRITE, marks=pytest.mark.long), FULL])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, mode: str) -> AsyncGenerator[Served]:
    """A client of a server on stdio, and the process ids of the server and of its broker."""
    # Not those of other tests: this one runs out of descriptors.
    servers = SharedServers(tmp_path_factory.mktemp("files"))
    setup = servers.setup(mode)
    client = await servers.client(setup)
    parents = {pid: parent(pid) for pid in processes()}
    ours = {pid for pid in parents if str(setup.home / "state") in arguments(pid)}
    (server,) = (pid for pid in ours if parents[pid] == os.getpid())
    (broker,) = (pid for pid in ours if parents[pid] == server)
    yield client, server, broker
    await servers.aclose()


@contextmanager
def few_files(pid: int, free: int, *, taken: Iterable[int] = ()) -> Generator[None]:
    """Let a process open no more than `free` files more; what it forks meanwhile has the same limit.

    The numbers in `taken` count as open: a broker gives up its reserve, below 8, at the end of a command.
    """
    used = {*taken, *(int(name) for name in os.listdir(f"/proc/{pid}/fd"))}
    limit = 0
    while free or limit in used:
        free -= limit not in used
        limit += 1
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


async def bash(client: Client) -> str:
    return text(await client.call_tool("bash", {"command": "echo on"}))


async def test_a_server_without_descriptors_says_so_and_goes_on_when_there_are_some(served: Served) -> None:
    client, server, _ = served
    assert await bash(client) == "on\n"
    errors: set[str] = set()
    for free in range(14):
        with few_files(server, free):
            errors.add(await bash(client))
        assert await bash(client) == "on\n"
    assert errors > {"on\n"}
    assert all(TOO_MANY.search(one) for one in errors - {"on\n"}), errors


@pytest.mark.parametrize("mode", [FULL], indirect=True)
async def test_a_session_that_lacks_descriptors_says_so(served: Served) -> None:
    client, server, _ = served
    code = {"language": "shell", "code": "echo on", "session": "new", "end_session": True}
    assert "on\n" in text(await client.call_tool("REPL", code))
    errors: set[str] = set()
    for free in range(0, 14, 2):
        with few_files(server, free):
            errors.add(text(await client.call_tool("REPL", code)))
    failed = {one for one in errors if not one.startswith("on\n")}
    assert failed
    assert all(TOO_MANY.search(one) for one in failed), failed


async def test_a_broker_without_descriptors_is_named_and_serves_the_next_command(served: Served) -> None:
    client, _, broker = served
    assert await bash(client) == "on\n"
    for free in range(0, 24, 3):
        with few_files(broker, free, taken=range(8)):
            # For the first, a supervisor waits that was forked before, with the files that it needs.
            answers = [await bash(client) for _ in range(2)]
        assert all(one == "on\n" or TOO_MANY.search(one) for one in answers), (free, answers)
        if free == 0:
            assert any("too many files are open in the process broker" in one for one in answers)
        # A supervisor that was forked in need may still be there to refuse.
        with anyio.fail_after(PATIENCE):
            while await bash(client) != "on\n":
                await anyio.lowlevel.checkpoint()
    assert resource.prlimit(broker, resource.RLIMIT_NOFILE)[0] > 100
