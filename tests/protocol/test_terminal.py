"""Standard input and output that are no pipes: what is read and written there, and how they end."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from mcp_toolserver.protocol.stdio import streams
from mcp_toolserver.protocol.stdio.streams import LineReader, LineWriter


def note(text: str = "") -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": text}))


@contextmanager
def reading(source: int) -> Generator[tuple[LineReader, LineWriter]]:
    """The streams over `source` and nothing."""
    target = os.open(os.devnull, os.O_WRONLY)
    try:
        yield streams.open_files(source, target)
    finally:
        for descriptor in (source, target):
            os.close(descriptor)


async def test_a_line_that_is_too_long_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(streams, "LONGEST", 8)
    (tmp_path / "lines").write_bytes(b"x" * 20 + b"\n" + b"y" * 7 + b"\n" + b"z" * 9)
    with reading(os.open(tmp_path / "lines", os.O_RDONLY)) as (reader, _):
        assert [await reader.line() for _ in range(4)] == [None, b"y" * 7 + b"\n", None, b""]


@pytest.mark.parametrize("error", [False, True], ids=["end", "error"])
async def test_what_can_be_read_no_more_is_at_its_end(error: bool) -> None:
    ours, theirs = os.openpty()
    os.close(ours)
    if error:
        os.close(theirs)
        # Nothing lies at its start, which is an error of the device.
        theirs = os.open("/proc/self/mem", os.O_RDONLY)
    with reading(theirs) as (reader, _):
        assert [message async for message in reader] == []


async def test_a_terminal_is_not_read_on_after_its_end_of_input() -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"\x04")
    with reading(theirs) as (reader, _), anyio.fail_after(10):
        assert [message async for message in reader] == []
        assert [message async for message in reader] == []
    os.close(ours)


async def test_who_waits_for_a_line_can_be_cancelled() -> None:
    source, target = os.pipe()
    with reading(source) as (reader, _):
        with anyio.fail_after(10):
            with anyio.move_on_after(0.01) as waited:
                await reader.line()
            assert waited.cancelled_caught
        # Lets the thread go.
        os.close(target)


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["small", "large"])
async def test_what_nobody_reads_any_more_is_closed(size: int) -> None:
    source, target = os.pipe()
    os.close(source)
    _, writer = streams.open_files(target, target)
    with anyio.fail_after(10):
        await writer.wait_for_reader_gone()
        with pytest.raises(anyio.ClosedResourceError):
            await writer.send(note("x" * size))
    os.close(target)


async def test_a_file_is_never_without_a_reader(tmp_path: Path) -> None:
    with (tmp_path / "answers").open("wb") as file:
        async with streams.open_files(file.fileno(), file.fileno())[1] as writer:
            await writer.send(note("a"))
            with anyio.move_on_after(0.05) as waited:
                await writer.wait_for_reader_gone()
    assert waited.cancelled_caught
    assert (tmp_path / "answers").read_bytes().count(b"\n") == 1
