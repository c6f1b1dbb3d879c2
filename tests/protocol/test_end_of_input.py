"""After the end of input a real server answers what only reads, and ends what does more."""

import json
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.protocol.lines import Running, call, on_pipes, opening, running
from tests.support.families import Family, lines, outcomes
from tests.support.live import Setup
from tests.support.processes import until


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


@contextmanager
def piped(setup: Setup, era: str, *, to_file: bool = False) -> Generator[Running]:
    """A server between two pipes, or with its answers in a file, after the opening."""
    if to_file:
        stdin, to_server = os.pipe()
        stdout = os.open(setup.home / "answers", os.O_WRONLY | os.O_CREAT, 0o600)
        started = running(setup, (stdin, stdout), [to_server])
    else:
        started = on_pipes(setup)
    with started as server:
        server.say(*opening(era))
        yield server


async def all_answers(server: Running) -> list[dict[str, Any]]:
    """Everything that it answers after the end of its input, once it has ended."""
    found = b""
    with anyio.fail_after(30):
        while server.ends and (read := await anyio.to_thread.run_sync(os.read, server.ends[0], 1 << 16)):
            found += read
    await server.ended()
    found = found or (server.setup.home / "answers").read_bytes()
    return [json.loads(line) for line in found.splitlines()]


async def answers_by_id(server: Running) -> dict[int, dict[str, Any]]:
    return {answer["id"]: answer for answer in await all_answers(server)}


@pytest.mark.parametrize(
    ("era", "to_file"),
    [
        pytest.param("legacy", False, id="pipe"),
        pytest.param("auto", True, id="file", marks=pytest.mark.long),
    ],
)
async def test_what_only_reads_is_answered_after_the_end_of_input(
    era: str, to_file: bool, setup: Setup
) -> None:
    (setup.root / "a").write_text("here", encoding="utf-8")
    with piped(setup, era, to_file=to_file) as server:
        asked = (
            call("Sleep", 1, era=era, duration_ms=1500),
            call("read_file", 2, era=era, path="a"),
            call("no_such_tool", 3, era=era),
        )
        server.say(*asked)
        server.close(server.ends[0])
        answers = await answers_by_id(server)
    assert answers[1]["result"]["content"][0]["text"] == "Slept for 1500ms"
    assert "here" in answers[2]["result"]["content"][0]["text"]
    assert answers[3]["error"]["code"] == -32602
    assert server.process.returncode == 0


async def test_a_command_is_cancelled_before_the_reads_are_through(setup: Setup) -> None:
    family = Family()
    with piped(setup, "auto") as server:
        server.say(call("Sleep", 1, era="auto", duration_ms=4000))
        server.say(call("bash", 2, era="auto", command=family.command))
        await until(lambda: family.runs)
        server.close(server.ends[0])
        answers = await all_answers(server)
    assert [answer["id"] for answer in answers] == [0, 2, 1]
    assert answers[1]["error"]["code"] == -32000
    assert "result" in answers[2]
    assert family.is_gone
    assert sorted(outcomes(setup.home)) == [("Sleep", "output"), ("bash", "cancelled")]


@pytest.mark.long
async def test_a_read_that_takes_too_long_is_cancelled(setup: Setup) -> None:
    with piped(setup, "legacy") as server:
        server.say(call("Sleep", 1, duration_ms=60_000))
        server.close(server.ends[0])
        answers = await answers_by_id(server)
    assert answers[1]["error"]["code"] == -32000
    assert outcomes(setup.home) == [("Sleep", "cancelled")]


async def test_nothing_is_waited_for_that_nobody_reads(setup: Setup) -> None:
    with piped(setup, "legacy") as server:
        await server.first_answer()
        server.say(call("Sleep", 1, duration_ms=3000))
        server.close(*server.ends)
        await server.ended()
    # It would have come to its end within the time for reads.
    assert outcomes(setup.home) == [("Sleep", "cancelled")]


async def test_a_large_answer_waits_for_a_slow_reader(setup: Setup) -> None:
    (setup.root / "b").write_text(('"' * 99 + "\n") * 1800, encoding="utf-8")
    with piped(setup, "legacy") as server:
        server.say(call("read_file", 1, path="b"))
        server.close(server.ends[0])
        # It has been called, and its answer does not fit into the pipe.
        await until(lambda: len(lines(setup.home)) == 1)
        answers = await answers_by_id(server)
    # A pipe holds no more than 64 KiB, and JSON adds escapes.
    assert len(json.dumps(answers[1])) > 1 << 16


@pytest.mark.long
async def test_a_signal_ends_the_wait_for_reads(setup: Setup) -> None:
    family = Family()
    with piped(setup, "legacy") as server:
        server.say(call("Sleep", 1, duration_ms=4000))
        server.say(call("bash", 2, command=family.command))
        await until(lambda: family.runs)
        server.close(server.ends[0])
        # The command is cancelled, so the wait has begun.
        await until(lambda: family.is_gone)
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 143
    assert ("Sleep", "cancelled") in outcomes(setup.home)
