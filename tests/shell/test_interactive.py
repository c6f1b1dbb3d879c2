"""Commands that stay and are talked to, at a real broker."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.processes import interactive as dialogue_module
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from tests.support.processes import PATIENCE, Daemons, status, until

BOTH = pytest.mark.parametrize("layer", ["linux", "posix"], indirect=True)
"""For what the broker has a part in."""

Talk = Callable[..., AbstractAsyncContextManager[InteractiveProcess]]


@pytest.fixture
def talk(at: Broker) -> Talk:
    """A conversation with a program, which ends with its block."""

    @asynccontextmanager
    async def conversation(*argv: str) -> AsyncGenerator[InteractiveProcess]:
        with anyio.fail_after(3 * PATIENCE):
            dialogue = await start_interactive(at, argv)
            try:
                yield dialogue
            finally:
                await dialogue.end()

    return conversation


async def heard(dialogue: InteractiveProcess, count: int) -> bytes:
    read = b""
    while len(read) < count and (piece := await dialogue.read()):
        read += piece
    return read


@BOTH
async def test_what_is_said_is_answered_until_it_is_ended(talk: Talk) -> None:
    async with talk("cat") as dialogue:
        for word in (b"one\n", b"'two' $three\n"):
            await dialogue.stdin.write(word)
            assert await heard(dialogue, len(word)) == word
        assert dialogue.exit is None
    assert dialogue.exit is not None
    assert dialogue.exit.reason == "stopped"


@BOTH
async def test_arguments_arrive_as_they_are(talk: Talk) -> None:
    words = ("", "a b", "$HOME", "'\"`x`\n")
    async with talk("printf", "%s|", *words) as dialogue:
        assert await heard(dialogue, 1 << 20) == "".join(f"{word}|" for word in words).encode()


async def test_more_than_the_pipes_hold_is_said_while_the_answer_is_heard(talk: Talk) -> None:
    data = os.urandom(1 << 20) * 4
    async with talk("cat") as dialogue, anyio.create_task_group() as tasks:
        tasks.start_soon(dialogue.stdin.write, data)
        assert await heard(dialogue, len(data)) == data


@BOTH
async def test_a_program_that_ended_is_no_partner(talk: Talk) -> None:
    async with talk("sh", "-c", "echo why >&2; exit 3") as dialogue:
        assert await dialogue.read() == b""
        await until(lambda: dialogue.exit is not None)
        assert dialogue.exit is not None
        assert dialogue.exit.status == 3
        assert dialogue.stderr() == b"why\n"
        with pytest.raises(Unavailable, match="has ended"):
            await dialogue.stdin.write(b"hello")


async def test_only_the_last_complaints_are_kept(talk: Talk) -> None:
    async with talk("sh", "-c", "yes complaint | head -c 1000000 >&2; echo last >&2") as dialogue:
        await until(lambda: dialogue.exit is not None)
        assert len(dialogue.stderr()) == 64 << 10
        assert dialogue.stderr().endswith(b"last\n")


@BOTH
async def test_who_uses_a_job_that_does_not_end_in_time_gets_a_note(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue_module, "END_SECONDS", 0.1)
    daemons, heard, refused = Daemons(), list[bytes](), list[str]()

    async def hear(dialogue: InteractiveProcess) -> None:
        heard.append(await dialogue.read())

    async def say(dialogue: InteractiveProcess) -> None:
        try:
            await dialogue.stdin.write(b"x" * (8 << 20))
        except Unavailable as error:
            refused.append(str(error))

    async with talk("sleep", daemons.mark) as dialogue, anyio.create_task_group() as tasks:
        await until(lambda: len(daemons.alive()) == 1)
        supervisor = int(status(daemons.alive()[0])["PPid"])
        tasks.start_soon(hear, dialogue)
        tasks.start_soon(say, dialogue)
        await anyio.wait_all_tasks_blocked()
        # What does not run kills nothing, so the pipes stay open at the other end.
        os.kill(supervisor, signal.SIGSTOP)
        try:
            await dialogue.end()
            await until(lambda: bool(heard and refused))
        finally:
            os.kill(supervisor, signal.SIGCONT)
        await until(lambda: not daemons.alive() and dialogue.exit is not None)
        assert heard == [b""]
        assert refused == ["The program that was talked to has ended."]


async def test_what_was_ended_is_not_read_or_written_under_a_descriptor_used_again(
    talk: Talk,
) -> None:
    async with talk("cat") as dialogue:
        await dialogue.end()
        pipes = [os.pipe() for _ in range(8)]
        try:
            for reading, writing in pipes:
                os.set_blocking(reading, False)
                os.write(writing, b"of another")
            assert await dialogue.read() == b""
            with pytest.raises(Unavailable):
                await dialogue.stdin.write(b"hello")
            assert [os.read(reading, 100) for reading, _ in pipes] == [b"of another"] * 8
        finally:
            for pair in pipes:
                for descriptor in pair:
                    os.close(descriptor)
