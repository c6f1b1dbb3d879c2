"""Standard input and output that are no pipes: what is read and written there, and how they end."""

import os

import anyio
import pytest

from mcp_toolserver.protocol.stdio import _Answers, _Lines


async def test_lines_come_until_the_end_which_is_told() -> None:
    source, target = os.pipe()
    os.write(target, b"one\ntwo\n")
    os.close(target)
    ends: list[str] = []
    with os.fdopen(source, encoding="utf-8") as file:
        assert [line async for line in _Lines(file, lambda: ends.append("end"))] == ["one\n", "two\n"]
    assert ends == ["end"]


@pytest.mark.parametrize("error", [False, True], ids=["end", "error"])
async def test_what_can_be_read_no_more_is_at_its_end(error: bool) -> None:
    ours, theirs = os.openpty()
    os.close(ours)
    if error:
        os.close(theirs)
        # Nothing lies at its start, which is an error of the device.
        theirs = os.open("/proc/self/mem", os.O_RDONLY)
    ends: list[str] = []
    with os.fdopen(theirs, encoding="utf-8") as file:
        assert [line async for line in _Lines(file, lambda: ends.append("end"))] == []
    assert ends == ["end"]


async def test_who_waits_for_a_line_can_be_cancelled() -> None:
    source, target = os.pipe()
    file = os.fdopen(source, encoding="utf-8")
    with anyio.fail_after(10):
        with anyio.move_on_after(0.01) as waited:
            await _Lines(file, lambda: None).readline()
        assert waited.cancelled_caught
    # Lets the thread go, which the file is closed after.
    os.close(target)
    await anyio.to_thread.run_sync(file.close)


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["when-flushed", "when-written"])
async def test_what_nobody_reads_any_more_is_closed(size: int) -> None:
    source, target = os.pipe()
    os.close(source)
    answers = _Answers(os.fdopen(os.dup(target), "w", encoding="utf-8", closefd=False))
    os.close(target)

    async def tell() -> None:
        await answers.write("x" * size)
        await answers.flush()

    with pytest.raises(anyio.ClosedResourceError):
        await tell()
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), answers.wrapped.fileno())
    os.close(answers.wrapped.fileno())
