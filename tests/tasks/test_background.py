"""Work that outlives its call: cancelled, ended, failed, and at the end of the server."""

import asyncio

import pytest

from mcp_toolserver.runtime.background import Background, ended


async def test_work_ends_alone_and_at_the_end_of_the_server_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, begun, steps = Background(), asyncio.Event(), list[str]()

    async def fail() -> None:
        raise ValueError("oops")

    async def careful() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def late() -> None:
        steps.append("late")

    running = background.start(careful, name="careful")
    await ended(background.start(fail, name="the work"))
    assert "the work failed" in caplog.text
    cancelled = background.start(careful, name="another")
    await begun.wait()
    cancelled.cancel()
    await ended(cancelled)
    assert not running.done()
    await background.aclose()
    assert running.done()
    await ended(background.start(late, name="late"))
    assert "late" not in steps
    assert steps[-1] == "cleaned up"
