"""The official TypeScript client has one conversation with the real server, in both eras."""

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
from tests.support.official import node_modules
from tests.support.processes import arguments, processes, until

pytestmark = pytest.mark.long

LEGACY, MODERN = "2025-11-25", "2026-07-28"

MODES = {"auto": MODERN, "legacy": LEGACY}
"""By how the client begins, the version that it must come to."""


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


async def outcome(driver: asyncio.subprocess.Process) -> Outcome:
    """What came of the next step."""
    assert driver.stdout is not None
    with anyio.fail_after(30):
        line = await driver.stdout.readline()
    assert line, "the driver ended"
    return Outcome(**json.loads(line))


def go_on(driver: asyncio.subprocess.Process) -> None:
    assert driver.stdin is not None
    driver.stdin.write(b"\n")


@asynccontextmanager
async def driven(
    mode: str, way: Mapping[str, Any], steps: Sequence[Step]
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The client on its way through the conversation."""
    task = {"transport": way, "mode": mode, "answer": ANSWER, "steps": [step.do for step in steps]}
    packages, script = node_modules(), Path(__file__).with_name("driver.mjs")
    process = await asyncio.create_subprocess_exec(
        packages / "node" / "bin" / "node", script, packages, json.dumps(task),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def runs(marker: str) -> bool:
    """Whether the command with this word runs."""
    return any({"sleep", marker} <= set(arguments(pid)) for pid in processes())


@pytest.mark.requirement("DC-07", "DC-16")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_official_typescript_client_has_the_whole_conversation(
    transport: str, mode: str, setup: Setup, url: str
) -> None:
    # As a number of seconds, it is a word that `sleep` takes.
    marker = f"0.{secrets.randbelow(10**12):012}"
    steps = conversation(marker)
    stdio = {"command": setup.command, "environment": setup.environment}
    way = stdio if transport == "stdio" else {"url": url, "token": TOKEN}
    faults: list[str] = []
    async with driven(mode, way, steps) as talk:
        assert list((await outcome(talk)).names) == ["mcp-toolserver", MODES[mode]]
        go_on(talk)
        for step in steps:
            if step.name == RUNNING:
                await outcome(talk)
                await until(lambda: runs(marker))
                go_on(talk)
            faults += step.faults(await outcome(talk))
            if step.name == RUNNING:
                await until(lambda: not runs(marker))
            go_on(talk)
        assert faults == []
        with anyio.fail_after(30):
            assert await talk.wait() == 0
