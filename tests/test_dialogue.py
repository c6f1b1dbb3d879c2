"""Commands that stay and are talked to, at a real broker."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.dialogue import Dialogue, converse
from tests.processes import PATIENCE, Daemons, broker, until


@asynccontextmanager
async def talk(*argv: str) -> AsyncGenerator[Dialogue]:
    folder = os.open("/", os.O_RDONLY)
    with broker() as at, anyio.fail_after(3 * PATIENCE):
        dialogue = await converse(at, argv, cwd=folder)
        try:
            yield dialogue
        finally:
            await dialogue.end()
            os.close(folder)


async def heard(dialogue: Dialogue, count: int) -> bytes:
    read = b""
    while len(read) < count and (piece := await dialogue.hear()):
        read += piece
    return read


async def test_what_is_said_is_answered_until_it_is_ended() -> None:
    async with talk("cat") as dialogue:
        for word in (b"one\n", b"'two' $three\n"):
            await dialogue.say(word)
            assert await heard(dialogue, len(word)) == word
        assert dialogue.exit is None
    assert dialogue.exit is not None
    assert dialogue.exit.reason == "stopped"


@pytest.mark.parametrize("word", ["", "a b", "$HOME", "'\"`x`\n"])
async def test_arguments_arrive_as_they_are(word: str) -> None:
    async with talk("printf", "%s|", word) as dialogue:
        assert await heard(dialogue, 1 << 20) == f"{word}|".encode()


async def test_more_than_the_pipes_hold_is_said_while_the_answer_is_heard() -> None:
    data = os.urandom(1 << 20) * 4
    async with talk("cat") as dialogue, anyio.create_task_group() as tasks:
        tasks.start_soon(dialogue.say, data)
        assert await heard(dialogue, len(data)) == data


async def test_a_program_that_ended_is_no_partner() -> None:
    async with talk("sh", "-c", "echo why >&2; exit 3") as dialogue:
        assert await dialogue.hear() == b""
        await until(lambda: dialogue.exit is not None)
        assert dialogue.exit is not None
        assert dialogue.exit.status == 3
        assert dialogue.complaints() == b"why\n"
        with pytest.raises(Unavailable, match="has ended"):
            await dialogue.say(b"hello")


async def test_only_the_last_complaints_are_kept() -> None:
    async with talk("sh", "-c", "yes complaint | head -c 1000000 >&2; echo last >&2") as dialogue:
        await until(lambda: dialogue.exit is not None)
        assert len(dialogue.complaints()) == 64 << 10
        assert dialogue.complaints().endswith(b"last\n")


async def test_all_that_it_started_ends_with_it() -> None:
    daemons = Daemons()
    async with talk("sh", "-c", f"{daemons.script} cat") as dialogue:
        assert await heard(dialogue, 6) == b"ready\n"
        await until(lambda: len(daemons.alive()) == 4)
        await dialogue.end()
        assert daemons.alive() == []


async def test_a_broker_that_is_gone_starts_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    folder = os.open("/", os.O_RDONLY)
    with broker() as at:
        pass
    with pytest.raises(Unavailable):
        await converse(at, ("cat",), cwd=folder)
    os.close(folder)
    assert set(os.listdir("/proc/self/fd")) <= before
