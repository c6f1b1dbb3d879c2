"""The official clients, of both eras and two languages, have one conversation with the real server."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients.conversation import ANSWER, RUNNING, Outcome, Step, conversation
from tests.support.live import TOKEN, Setup, serving
from tests.support.official import node_modules, old_python
from tests.support.processes import arguments, processes, until

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
LEGACY, MODERN = "2025-11-25", "2026-07-28"

CLIENTS: Mapping[str, tuple[str, str]] = {
    "typescript-auto": ("auto", MODERN),
    "typescript-legacy": ("legacy", LEGACY),
    "python-1": ("", LEGACY),
}
"""By client how it is to begin, and the version that it must come to."""


def driver(client: str) -> list[str]:
    """The command that starts the driver of a client."""
    if client == "python-1":
        return [str(old_python()), str(HERE / "driver_1x.py")]
    packages = node_modules()
    return [str(packages / "node" / "bin" / "node"), str(HERE / "driver.mjs"), str(packages)]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("clients")
    for name in ("root/src", "home"):
        (folder / name).mkdir(parents=True)
    (folder / "root/src/a.py").write_text("print('hello')\n", encoding="utf-8")
    return Setup(root=folder / "root", home=folder / "home")


@pytest.fixture(scope="module")
def url(setup: Setup) -> Generator[str]:
    with serving(setup, "http") as address:
        yield address


class Driver:
    """A client on its way through the conversation."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def outcome(self) -> Outcome:
        """What came of the next step."""
        assert self._process.stdout is not None
        with anyio.fail_after(30):
            line = await self._process.stdout.readline()
        assert line, "the driver ended"
        return Outcome(**json.loads(line))

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def end(self) -> int:
        with anyio.fail_after(30):
            return await self._process.wait()


@asynccontextmanager
async def driven(client: str, way: Mapping[str, Any], steps: Sequence[Step]) -> AsyncGenerator[Driver]:
    """The driver of a client, with its task."""
    mode, _ = CLIENTS[client]
    task = {"transport": way, "mode": mode, "answer": ANSWER, "steps": [step.do for step in steps]}
    process = await asyncio.create_subprocess_exec(
        *driver(client), json.dumps(task),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    try:
        yield Driver(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def runs(marker: str) -> bool:
    """Whether the command with this word runs."""
    return any({"sleep", marker} <= set(arguments(pid)) for pid in processes())


@pytest.mark.requirement("DC-07", "DC-16")
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_official_client_has_the_whole_conversation(
    transport: str, client: str, setup: Setup, url: str
) -> None:
    # As a number of seconds, it is a word that `sleep` takes.
    marker = f"0.{secrets.randbelow(10**12):012}"
    steps = conversation(marker)
    stdio = {"command": setup.command, "environment": setup.environment}
    way = stdio if transport == "stdio" else {"url": url, "token": TOKEN}
    faults: list[str] = []
    async with driven(client, way, steps) as talk:
        assert list((await talk.outcome()).names) == ["mcp-toolserver", CLIENTS[client][1]]
        talk.go_on()
        for step in steps:
            if step.name == RUNNING:
                await talk.outcome()
                await until(lambda: runs(marker))
                talk.go_on()
            faults += step.faults(await talk.outcome())
            if step.name == RUNNING:
                await until(lambda: not runs(marker))
            talk.go_on()
        assert faults == []
        assert await talk.end() == 0
