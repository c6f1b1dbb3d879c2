"""The official TypeScript client has one conversation with the real server, in both eras.

Its driver takes the steps as JSON and tells after each what came of it, as JSON too, in words of `Outcome`.
It goes on when it reads a line, so that the machine can be looked at in between.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.live import TOKEN, Setup, serving
from tests.support.official import node_modules
from tests.support.processes import arguments, processes, until

pytestmark = pytest.mark.long

LEGACY, MODERN = "2025-11-25", "2026-07-28"

MODES = {"auto": MODERN, "legacy": LEGACY}
"""By how the client begins, the version that it must come to."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a driver saw of one step."""

    text: str = ""
    """Of all blocks, lines between them; of a long one the end."""
    length: int = 0
    """Characters of the whole text."""
    is_error: bool = False
    code: int | None = None
    """Of a protocol error."""
    names: Sequence[str] = ()
    """Of what was listed."""
    links: int = 0
    """Links to resources; the next step may read the last one."""
    progress: int = 0
    """Reports that came meanwhile."""
    asked: Sequence[str] = ()
    """What the user was asked meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something a client does, and what it must see."""

    name: str
    do: Mapping[str, Any]
    says: str = ""
    """A pattern that must be found in the text."""
    is_error: bool = False
    code: int | None = None
    """Of the protocol error."""
    has: Sequence[str] = ()
    """Names that must be listed."""
    lacks: Sequence[str] = ()
    """Names that must not be."""
    links: int = 0
    progress: int = 0
    asked: Sequence[str] = ()
    at_least: int = 0
    """Characters of the whole text."""

    def faults(self, seen: Outcome) -> list[str]:
        """What differs."""
        wrong = {
            "text": not re.search(self.says, seen.text),
            "is_error": seen.is_error != self.is_error,
            "code": seen.code != self.code,
            "names": not set(self.has) <= set(seen.names) or bool(set(self.lacks) & set(seen.names)),
            "links": seen.links != self.links,
            "progress": seen.progress < self.progress,
            "asked": not all(re.search(*pair) for pair in zip(self.asked, seen.asked, strict=True)),
            "length": seen.length < self.at_least,
        }
        return [
            f"{self.name}: {what} is {getattr(seen, what)!r}" for what, is_wrong in wrong.items() if is_wrong
        ]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"op": "call", "tool": tool, "arguments": arguments}


RUNNING = "running"
"""The step in which a command runs, and is cancelled when the driver may go on."""

ANSWER = {"answer_1": "blue"}
"""What the user says when asked."""


def conversation(marker: str) -> list[Step]:
    """The steps. `marker` is a word in the command that is cancelled, by which its process can be found."""
    question = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
    return [
        Step(
            name="list the tools",
            do={"op": "tools"},
            has=("read_file", "glob_search", "bash", "AskUserQuestion"),
            lacks=("write_file", "edit_file"),
        ),
        Step(name="read a file", do=call("read_file", path="src/a.py"), says=r"1\tprint\('hello'\)"),
        Step(
            name="a refused write",
            do=call("write_file", path="b.txt", content="b"),
            says="requires workspace-write permission",
            is_error=True,
        ),
        Step(name="an unknown tool", do=call("no_such_tool"), code=-32602),
        # The official TypeScript client drops progress that it reads in one piece with the answer.
        Step(name="progress", do=call("Sleep", duration_ms=1_000), says="Slept", progress=1),
        Step(
            name=RUNNING,
            do={"op": "cancel", "tool": "bash", "arguments": {"command": f"sleep 300 {marker}"}},
            says="given up",
        ),
        Step(name="what comes after", do=call("bash", command="echo again"), says="again"),
        Step(name="a long result", do=call("bash", command="seq 100000"), says="100000", links=1),
        Step(name="the whole of it", do={"op": "read"}, says=r"\n100000\n?$", at_least=500_000),
        Step(
            name="a question to the user",
            do=call("AskUserQuestion", questions=[question]),
            says="blue",
            asked=("Which colour",),
        ),
    ]


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
