"""A server, and its broker, that may open no more files: what callers get, and that both go on."""

import os
import re
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from tests.support.live import MODES, Setup, connected, text
from tests.support.processes import arguments, few_files, few_files_of_broker, processes, status

TOO_MANY = re.compile("too many files are open", re.IGNORECASE)


@asynccontextmanager
async def serving(folder: Path, mode: str) -> AsyncGenerator[tuple[Client, int, int]]:
    """A client of a server on stdio, and the process ids of the server and of its broker."""
    for name in ("root", "home"):
        (folder / name).mkdir()
    setup = Setup(root=folder / "root", home=folder / "home", mode=mode)
    async with connected(setup) as client:
        parents = {pid: int(status(pid).get("PPid", 0)) for pid in processes()}
        ours = {pid for pid in parents if str(setup.home / "state") in arguments(pid)}
        (server,) = (pid for pid in ours if parents[pid] == os.getpid())
        (broker,) = (pid for pid in ours if parents[pid] == server)
        yield client, server, broker


async def bash(client: Client) -> str:
    return text(await client.call_tool("bash", {"command": "echo on"}))


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_without_descriptors_says_so_and_goes_on_when_there_are_some(
    mode: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, mode) as (client, server, _):
        assert await bash(client) == "on\n"
        errors: set[str] = set()
        for free in range(14):
            with few_files(server, free):
                errors.add(await bash(client))
            assert await bash(client) == "on\n"
        assert errors > {"on\n"}
        assert all(TOO_MANY.search(one) for one in errors - {"on\n"}), errors


async def test_a_session_that_lacks_descriptors_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, "danger-full-access") as (client, server, _):
        code = {"language": "shell", "code": "echo on", "session": "new", "end_session": True}
        assert "on\n" in text(await client.call_tool("REPL", code))
        errors: set[str] = set()
        for free in range(14):
            with few_files(server, free):
                errors.add(text(await client.call_tool("REPL", code)))
        failed = {one for one in errors if not one.startswith("on\n")}
        assert failed
        assert all(TOO_MANY.search(one) for one in failed), failed


@pytest.mark.parametrize("mode", MODES)
async def test_a_broker_without_descriptors_is_named_and_serves_the_next_command(
    mode: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, mode) as (client, _, broker):
        assert await bash(client) == "on\n"
        with few_files_of_broker(broker, 0):
            assert "too many files are open in the process broker" in await bash(client)
        # A supervisor that was forked in need may still be there to refuse.
        assert [await bash(client) for _ in range(4)][-1] == "on\n"
        assert resource.prlimit(broker, resource.RLIMIT_NOFILE)[0] > 100
