"""After the end of input a real server answers what only reads, and ends what does more."""

import json
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.protocol.lines import ENVELOPE, opening
from tests.support.families import Family, lines, mentioning, outcomes
from tests.support.live import Setup
from tests.support.processes import until


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


@dataclass
class Piped:
    """A server between two pipes, or with its answers in a file."""

    process: subprocess.Popen[bytes]
    era: str
    answers: Path | None = None
    rest: bytes = b""
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def say(self, *messages: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        params = {"name": tool, "arguments": arguments, **(ENVELOPE if self.era == "auto" else {})}
        self.say({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def all_answers(self) -> list[dict[str, Any]]:
        """Everything that it answered, once it has ended."""
        with anyio.fail_after(30):
            if self.process.stdout is None:
                await until(lambda: self.process.poll() is not None)
            text = await anyio.to_thread.run_sync(self._read)
        await until(lambda: self.process.poll() is not None)
        return [json.loads(line) for line in text.splitlines()]

    def _read(self) -> bytes:
        if self.process.stdout is not None:
            return self.process.stdout.read()
        assert self.answers is not None
        return self.answers.read_bytes()


@contextmanager
def piped(setup: Setup, era: str, *, to_file: bool = False) -> Generator[Piped]:
    answers = setup.home / "answers"
    with (setup.home / "stderr").open("wb") as errors, answers.open("wb") as file:
        process = subprocess.Popen(
            setup.command,
            env=setup.environment,
            stdin=subprocess.PIPE,
            stdout=file if to_file else subprocess.PIPE,
            stderr=errors,
        )
    found = Piped(process, era, answers)
    try:
        found.say(*opening(era))
        yield found
    finally:
        process.kill()
        process.wait(timeout=10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def by_id(answers: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {answer["id"]: answer for answer in answers}


@pytest.mark.parametrize(("era", "to_file"), [("legacy", False), ("auto", True)], ids=["pipe", "file"])
async def test_what_only_reads_is_answered_after_the_end_of_input(
    era: str, to_file: bool, setup: Setup
) -> None:
    (setup.root / "a").write_text("here", encoding="utf-8")
    with piped(setup, era, to_file=to_file) as server:
        server.call(1, "Sleep", duration_ms=1500)
        server.call(2, "read_file", path="a")
        server.call(3, "no_such_tool")
        server.end_input()
        answers = by_id(await server.all_answers())
    assert answers[1]["result"]["content"][0]["text"] == "Slept for 1500ms"
    assert "here" in answers[2]["result"]["content"][0]["text"]
    assert answers[3]["error"]["code"] == -32602
    assert server.process.returncode == 0


async def test_a_command_is_cancelled_before_the_reads_are_through(setup: Setup) -> None:
    family = Family()
    with piped(setup, "auto") as server:
        server.call(1, "Sleep", duration_ms=4000)
        server.call(2, "bash", command=family.command)
        await until(lambda: family.runs)
        server.end_input()
        answers = await server.all_answers()
    assert [answer["id"] for answer in answers] == [0, 2, 1]
    assert answers[1]["error"]["code"] == -32000
    assert "result" in answers[2]
    assert family.is_gone
    assert sorted(outcomes(setup.home)) == [("Sleep", "output"), ("bash", "cancelled")]


async def test_a_read_that_takes_too_long_is_cancelled(setup: Setup) -> None:
    with piped(setup, "legacy") as server:
        server.call(1, "Sleep", duration_ms=60_000)
        server.end_input()
        answers = by_id(await server.all_answers())
    assert answers[1]["error"]["code"] == -32000
    assert outcomes(setup.home) == [("Sleep", "cancelled")]


async def test_nothing_is_waited_for_that_nobody_reads(setup: Setup) -> None:
    with piped(setup, "legacy") as server:
        assert server.process.stdout is not None
        await anyio.to_thread.run_sync(server.process.stdout.readline)
        server.call(1, "Sleep", duration_ms=3000)
        server.end_input()
        server.process.stdout.close()
        await until(lambda: server.process.poll() is not None)
    # It would have come to its end within the time for reads.
    assert outcomes(setup.home) == [("Sleep", "cancelled")]


async def test_a_large_answer_waits_for_a_slow_reader(setup: Setup) -> None:
    (setup.root / "a").write_text("x" * 99 + "\n" * 1500, encoding="utf-8")
    (setup.root / "b").write_text(('"' * 99 + "\n") * 1800, encoding="utf-8")
    with piped(setup, "legacy") as server:
        server.call(1, "read_file", path="b")
        server.end_input()
        # It has been called, and its answer does not fit into the pipe.
        await until(lambda: len(lines(setup.home)) == 1)
        answers = by_id(await server.all_answers())
    # A pipe holds no more than 64 KiB, and JSON adds escapes.
    assert len(json.dumps(answers[1])) > 1 << 16


async def test_a_signal_ends_the_wait_for_reads(setup: Setup) -> None:
    family = Family()
    with piped(setup, "legacy") as server:
        server.call(1, "Sleep", duration_ms=4000)
        server.call(2, "bash", command=family.command)
        await until(lambda: family.runs)
        server.end_input()
        # The command is cancelled, so the wait has begun.
        await until(lambda: family.is_gone)
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: server.process.poll() is not None)
        assert server.process.returncode == 143
    assert ("Sleep", "cancelled") in outcomes(setup.home)
    assert not mentioning(str(setup.home))
