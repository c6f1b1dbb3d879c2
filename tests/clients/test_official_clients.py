"""The official TypeScript client has one conversation with the real server, in both eras.

Its driver takes the steps as JSON and tells after each what came of it, as JSON too.
It goes on when it reads a line, so that the machine can be looked at in between.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
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

Step = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Something a client does, and what it must see."""

USUAL: Mapping[str, Any] = {"is_error": False, "code": None, "links": 0, "asked": ()}
"""What it sees where a step says nothing else."""

CHECKS: Mapping[str, Callable[[Mapping[str, Any], Any], object]] = {
    "says": lambda seen, pattern: re.search(pattern, seen["text"]),
    "at_least": lambda seen, characters: seen["length"] >= characters,
    "has": lambda seen, names: {*names} <= {*seen["names"]},
    "lacks": lambda seen, names: {*names}.isdisjoint(seen["names"]),
    "progress": lambda seen, reports: seen["progress"] >= reports,
    "asked": lambda seen, parts: all(part in one for part, one in zip(parts, seen["asked"], strict=True)),
}
"""How it is compared where it need not be equal; a long text comes with its end only."""


def faults(step: Step, seen: Mapping[str, Any]) -> list[str]:
    do, expected = step
    return [
        f"{do}: {what} in {seen}"
        for what, value in {**USUAL, **expected}.items()
        if not (CHECKS[what](seen, value) if what in CHECKS else seen.get(what, USUAL[what]) == value)
    ]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"op": "call", "tool": tool, "arguments": arguments}


ANSWER = {"answer_1": "blue"}
"""What the user says when asked."""


def conversation(marker: str) -> list[Step]:
    """The steps. `marker` is a word in the command that is cancelled, by which its process can be found."""
    question = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
    offered = ("read_file", "glob_search", "bash", "AskUserQuestion")
    long = {"says": r"\n100000\n?$", "at_least": 500_000}
    refused = {"says": "requires workspace-write permission", "is_error": True}
    return [
        ({"op": "tools"}, {"has": offered, "lacks": ("write_file", "edit_file")}),
        (call("read_file", path="src/a.py"), {"says": r"1\tprint\('hello'\)"}),
        (call("write_file", path="b.txt", content="b"), refused),
        (call("no_such_tool"), {"code": -32602}),
        # The official TypeScript client drops progress that it reads in one piece with the answer.
        (call("Sleep", duration_ms=1_000), {"says": "Slept", "progress": 1}),
        ({**call("bash", command=f"sleep 300 {marker}"), "op": "cancel"}, {"says": "given up"}),
        (call("bash", command="echo again"), {"says": "again"}),
        (call("bash", command="seq 100000"), {"says": "100000", "links": 1}),
        ({"op": "read"}, long),
        (call("AskUserQuestion", questions=[question]), {"says": "blue", "asked": ("Which colour",)}),
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


async def outcome(driver: asyncio.subprocess.Process) -> dict[str, Any]:
    assert driver.stdout is not None
    with anyio.fail_after(30):
        line = await driver.stdout.readline()
    assert line, "the driver ended"
    return json.loads(line)


def go_on(driver: asyncio.subprocess.Process) -> None:
    assert driver.stdin is not None
    driver.stdin.write(b"\n")


@asynccontextmanager
async def driven(
    mode: str, way: Mapping[str, Any], steps: Sequence[Step]
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The client on its way through the conversation."""
    task = {"transport": way, "mode": mode, "answer": ANSWER, "steps": [do for do, _ in steps]}
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
    wrong: list[str] = []
    async with driven(mode, way, steps) as talk:
        assert (await outcome(talk))["names"] == ["mcp-toolserver", MODES[mode]]
        go_on(talk)
        for step in steps:
            if step[0]["op"] == "cancel":
                await outcome(talk)
                await until(lambda: runs(marker))
                go_on(talk)
            wrong += faults(step, await outcome(talk))
            if step[0]["op"] == "cancel":
                await until(lambda: not runs(marker))
            go_on(talk)
        assert wrong == []
        with anyio.fail_after(30):
            assert await talk.wait() == 0
