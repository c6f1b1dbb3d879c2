"""Commands as the server runs them: output, time, the background, and programs of our own."""

import errno
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.processes import Command, JobQuery, JobState
from mcp_toolserver.errors import NotFound, Unavailable
from mcp_toolserver.runtime.processes import interactive as dialogue_module
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.commands import CommandLimits, Commands
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.runtime.processes.output_capture import Capture, CaptureLimits
from mcp_toolserver.stores.saved_outputs import OutputFile, OutputStore
from mcp_toolserver.text.lines.encoding import decode_page, without_cut_start
from mcp_toolserver.text.shell.command_output import command_text
from tests.support.processes import (
    PATIENCE,
    Anywhere,
    Bench,
    Daemons,
    bench,
    broker,
    status,
    until,
)
from tests.support.snapshot import descriptors

SMALL = CommandLimits(capture=CaptureLimits(head=100, tail=50, file=1 << 20))
ECHO = ("/bin/echo", "--fixed")

BOTH = pytest.mark.parametrize("layer", ["linux", "posix"], indirect=True)
"""For what the broker has a part in, or the client of its layer."""


@pytest.fixture
async def here(at: Broker, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with bench(tmp_path, at=at) as made:
        yield made


@pytest.fixture
async def small(at: Broker, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with bench(tmp_path, SMALL, at=at) as made:
        yield made


async def page(at: Bench, handle: str, offset: int = 0, limit: int = 1000, wait: float = 0) -> JobState:
    """Output of a background command; waits so long for some."""
    query = JobQuery(handle=handle, offset=offset, limit=limit, wait=wait, until="output")
    return await at.call.output(query)


@BOTH
async def test_output_and_errors_come_in_the_order_written(here: Bench) -> None:
    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 3"
    job = await here.run(script)
    assert job.text == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert (job.exit_status, job.reason, job.running) == (3, "exited", False)
    assert (job.start, job.next_offset, job.total, job.handle, job.saved_output) == (0, 36, 36, "", None)


async def test_a_command_that_closes_its_output_still_counts_until_its_end(here: Bench) -> None:
    job = await here.run("echo first; exec >&- 2>&-; sleep 0.2; exit 5")
    assert (job.text, job.exit_status) == ("first\n", 5)


async def test_a_cut_does_not_split_a_character(small: Bench) -> None:
    job = await small.run("printf 'x'; printf '€%.0s' {1..100}")
    assert job.text == "x" + "€" * 33
    assert job.tail == "€" * 16
    assert job.omitted == 301 - 100 - 48


async def test_binary_output_fits_although_it_grows(small: Bench) -> None:
    job = await small.run("head -c 120 /dev/zero | tr '\\0' '\\377'")
    assert (job.text, job.omitted, job.tail) == ("\ufffd" * 33, 120 - 33 - 16, "\ufffd" * 16)
    assert job.saved_output is not None
    assert Path(job.saved_output.path).read_bytes() == b"\xff" * 120


async def test_a_file_of_output_has_a_limit(small: Bench) -> None:
    job = await small.run("head -c 3000000 /dev/zero; echo end")
    assert job.total == 3_000_004
    assert job.saved_output is not None
    assert job.saved_output.size == os.stat(job.saved_output.path).st_size == 1 << 20
    assert job.tail.endswith("\0end\n")


def peak() -> int:
    """The most memory that this process has had since `forget_peak`, in bytes."""
    return int(status(os.getpid())["VmHWM"].split()[0]) * 1024


def forget_peak() -> int:
    """Start a new measurement; the memory now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak()


async def test_much_output_costs_little_memory(here: Bench) -> None:
    before = forget_peak()
    job = await here.run("yes 'a line of text' | head -c 60000000")
    assert peak() - before < 20_000_000
    assert job.total == 60_000_000
    assert job.saved_output is not None
    assert os.stat(job.saved_output.path).st_size == 60_000_000


async def test_much_output_does_not_stall_the_server(here: Bench) -> None:
    seen: set[int] = set()
    job = await here.run("head -c 50000000 /dev/zero; sleep 100", background=True)
    with anyio.fail_after(PATIENCE):
        while (total := (await page(here, job.handle, limit=0)).total) < 50_000_000:
            seen.add(total)
            await anyio.sleep(0)
    # The loop took turns with the reading: no piece was larger than one read.
    assert len(seen) >= 40


class Full(OutputStore):
    """A private folder that cannot be written."""

    def create(self, owner: str) -> OutputFile:
        raise OSError(errno.ENOSPC, "no space left")


async def test_output_that_cannot_be_kept_is_shown_all_the_same(at: Broker) -> None:
    made = Bench(Commands(at, Anywhere(), Full("unused"), SMALL), at)
    job = await made.run("head -c 1000 /dev/zero | tr '\\0' x")
    await made.commands.aclose()
    assert (job.text, job.omitted, job.tail, job.saved_output) == ("x" * 100, 850, "x" * 50, None)
    assert job.unsaved == "no space left"
    assert "could not be saved, because no space left" in command_text(job)


async def test_a_timeout_kills_and_gives_what_was_printed(here: Bench) -> None:
    job = await here.run("echo begun; sleep 100", timeout=0.5)
    assert (job.text, job.reason, job.exit_status) == ("begun\n", "timed out", 137)
    assert job.seconds >= 0.5


@BOTH
async def test_where_no_time_is_left_to_start_the_answer_is_a_timeout(here: Bench) -> None:
    assert (await here.run("sleep 100", timeout=0.0)).reason == "timed out"


async def test_nothing_of_a_cancelled_command_is_left(here: Bench) -> None:
    daemons = Daemons()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.run, f"{daemons.script}sleep 100")
        await until(lambda: len(daemons.alive()) == 4)
        tasks.cancel_scope.cancel()
    # Cancelling returns only now, when all of it is gone.
    assert daemons.alive() == []


async def test_all_output_of_a_background_command_can_be_read_in_pages(small: Bench) -> None:
    job = await small.run("for i in {1..500}; do echo -n '€uro '; done", background=True)
    await small.ended(job)
    text, offset = "", 0
    while True:
        part = await page(small, job.handle, offset, limit=101)
        assert part.start == offset
        text, offset = text + part.text, part.next_offset
        if offset == part.total:
            break
    assert text == "€uro " * 500


@BOTH
async def test_nothing_of_a_stopped_background_command_is_left(here: Bench) -> None:
    first, second = Daemons(), Daemons()
    jobs = [
        await here.run(f"{one.script}sleep 100", background=True, timeout=None) for one in (first, second)
    ]
    await until(lambda: len([*first.alive(), *second.alive()]) == 8)
    assert (await here.call.stop(jobs[0].handle)).reason == "stopped"
    assert (first.alive(), len(second.alive())) == ([], 4)
    await here.commands.aclose()
    assert second.alive() == []
    with pytest.raises(Unavailable):
        await here.run("true")


async def test_only_so_many_commands_run_at_once(at: Broker, tmp_path: Path) -> None:
    async with bench(tmp_path, CommandLimits(running=2), at=at) as made:
        jobs = [await made.run("sleep 100", background=True) for _ in range(2)]
        with pytest.raises(Unavailable):
            await made.run("true")
        await made.call.stop(jobs[0].handle)
        assert (await made.run("echo on")).text == "on\n"


async def test_old_output_is_forgotten_for_newer_and_in_time(at: Broker, tmp_path: Path) -> None:
    async with bench(tmp_path, CommandLimits(ended=2), at=at) as made:
        jobs = []
        for number in range(3):
            jobs.append(await made.run(f"echo {number}", background=True))
            await made.ended(jobs[-1])
        with pytest.raises(NotFound):
            await page(made, jobs[0].handle)
        assert [(await page(made, job.handle)).text for job in jobs[1:]] == ["1\n", "2\n"]
    async with bench(tmp_path, CommandLimits(ended_seconds=0.0), at=at) as made:
        job = await made.run("true", background=True)
        with pytest.raises(NotFound):
            await made.ended(job)


@BOTH
async def test_no_descriptor_is_left_open(here: Bench) -> None:
    await here.run("head -c 300000 /dev/zero")
    before = descriptors()
    for _ in range(3):
        await here.run("head -c 300000 /dev/zero")
        await here.run("sleep 100", timeout=0.05)
        with suppress(FileNotFoundError):
            await here.run("true", cwd="/nonexistent-folder")
    assert descriptors() <= before


@pytest.fixture
def programs(at: Broker) -> Programs:
    return Programs(at)


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/bash", "-c", script)


@pytest.fixture
def cwd(tmp_path: Path) -> Generator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@BOTH
async def test_a_program_is_read_as_it_prints_and_reads_what_it_is_given(
    programs: Programs, cwd: int, tmp_path: Path
) -> None:
    async with programs.open(shell("echo out; echo err >&2; exit 2"), cwd=cwd, timeout=5) as running:
        output = b"".join([chunk async for chunk in running.chunks()])
        end = await running.wait()
        assert (output, running.stderr()) == (b"out\n", b"err\n")
        assert (end.status, end.reason) == (2, "exited")
    (tmp_path / "given").write_bytes(b"hello")
    with open(tmp_path / "given", "rb") as given:
        async with programs.open(shell("cat"), cwd=cwd, stdin=given.fileno(), timeout=5) as running:
            assert [chunk async for chunk in running.chunks()] == [b"hello"]
    async with programs.open(shell("cat"), cwd=cwd, timeout=5) as running:
        assert [chunk async for chunk in running.chunks()] == []


@BOTH
async def test_a_program_may_print_much_on_both_sides(programs: Programs, cwd: int) -> None:
    script = "head -c 3000000 /dev/urandom >&2; head -c 3000000 /dev/urandom"
    async with programs.open(shell(script), cwd=cwd, timeout=5) as running:
        size = sum([len(chunk) async for chunk in running.chunks()])
        await running.wait()
        assert (size, len(running.stderr())) == (3_000_000, 64 << 10)


@BOTH
async def test_leaving_ends_a_program_with_all_it_started(programs: Programs, cwd: int) -> None:
    daemons = Daemons()
    async with programs.open(shell(f"{daemons.script}yes"), cwd=cwd, timeout=60) as running:
        await until(lambda: len(daemons.alive()) == 4)
        async for _ in running.chunks():
            break
    assert daemons.alive() == []
    async with programs.open(shell("sleep 100"), cwd=cwd, timeout=0.2) as running:
        assert (await running.wait()).reason == "timed out"
    # An error while reading is itself.
    with pytest.raises(NotFound):
        async with programs.open(shell("sleep 100"), cwd=cwd, timeout=60):
            raise NotFound("mine")


@BOTH
async def test_a_program_that_cannot_be_started_is_said_to_be(programs: Programs, cwd: int) -> None:
    for argv in (("/bin/sh", "-c", "true"), (*ECHO, "nul\0"), ("/nonexistent/program",)):
        with pytest.raises(Unavailable):
            async with programs.open(argv, cwd=cwd, timeout=5):
                raise AssertionError("it runs")
    async with programs.open((*ECHO, "hi"), cwd=cwd, timeout=5) as running:
        assert [chunk async for chunk in running.chunks()] == [b"--fixed hi\n"]


@given(st.binary())
def test_a_page_of_anything_comes_to_its_end(data: bytes) -> None:
    text, used = decode_page(data, last=True)
    assert (text, used) == (data.decode(errors="replace"), len(data))
    assert len(data) - len(without_cut_start(data)) <= 3


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30), st.integers(0, 30))
def test_a_capture_holds_both_ends_whatever_the_pieces(pieces: list[bytes], head: int, tail: int) -> None:
    capture = Capture(Full("unused"), CaptureLimits(head=head, tail=tail, file=10))
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces)
    assert capture.total == len(whole)
    assert capture.read(0, head) == (0, whole[:head]) if whole[:head] else True
    start, end = capture.read(max(len(whole) - tail, 0), tail)
    assert whole[start:].startswith(end)
    if len(whole) <= head + tail:
        assert capture.excerpt(last=True).next_offset == len(whole)


async def test_what_starts_as_plan_mode_begins_is_suspended_and_what_cannot_be_is_stopped(
    tmp_path: Path,
) -> None:
    async def report(message: str) -> None:
        pass

    ticks = Command(
        script="while :; do echo x; sleep 0.02; done", cwd=CanonicalPath("/"), timeout=None, background=True
    )
    with broker() as at:
        async with bench(tmp_path, at=at) as here:
            at.writers.is_held = lambda _: True
            handles = [
                (await call.run(ticks, report)).handle
                # The second as of a command in a container.
                for call in (here.call, replace(here.call, is_elsewhere=True))
            ]
            query = JobQuery(handle=handles[1], limit=0, wait=PATIENCE)
            assert (await here.call.output(query)).reason == "stopped"
            query = JobQuery(handle=handles[0], limit=0)
            seen, held = -1, await here.call.output(query)
            with anyio.fail_after(PATIENCE):
                while held.total != seen:
                    seen = held.total
                    await anyio.sleep(0.3)
                    held = await here.call.output(query)
            assert (held.running, held.notes) == (True, ("it is suspended until plan mode ends",))
            at.writers.is_held = lambda _: False
            assert len(at.writers.settle()) == 1
            grown = replace(query, offset=seen, wait=PATIENCE, until="output")
            assert (await here.call.output(grown)).total > seen


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
async def test_more_than_the_pipes_hold_is_said_while_the_answer_is_heard_until_it_is_ended(
    talk: Talk,
) -> None:
    data = os.urandom(1 << 20) * 4
    async with talk("cat") as dialogue:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dialogue.stdin.write, data)
            assert await heard(dialogue, len(data)) == data
        assert dialogue.exit is None
    assert dialogue.exit is not None
    assert dialogue.exit.reason == "stopped"


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
