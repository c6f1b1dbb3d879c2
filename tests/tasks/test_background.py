"""Work that outlives its call: cancelled, ended, failed, and at the end of the server."""

import asyncio
import logging

import pytest

from mcp_toolserver.runtime.background import Background


async def test_work_runs_until_it_ends_or_is_cancelled() -> None:
    background, done = Background(), asyncio.Event()

    async def work() -> None:
        await done.wait()

    first = background.start(work, name="first")
    second = background.start(work, name="second")
    second.cancel()
    await second.ended()
    assert not first.has_ended
    done.set()
    await first.ended()
    assert first.has_ended


async def test_a_failure_is_logged_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()

    async def fail() -> None:
        raise ValueError("oops")

    with caplog.at_level(logging.ERROR):
        await background.start(fail, name="the work").ended()
    assert "the work failed" in caplog.text


async def test_the_end_of_the_server_waits_for_cancelled_work_and_starts_no_more() -> None:
    background, steps = Background(), list[str]()
    begun = asyncio.Event()

    async def careful() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def late() -> None:
        steps.append("late")

    background.start(careful, name="careful")
    await begun.wait()
    await background.aclose()
    await background.start(late, name="late").ended()
    assert steps == ["cleaned up"]
