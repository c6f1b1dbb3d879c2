"""The end of a process by itself: it comes once, and in time."""

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn

import anyio
import pytest

from mcp_toolserver.app.shutdown import run_until_shutdown


class Left(BaseException):
    """Stands for the end of the process."""


@dataclass
class Parts:
    """What is to be closed, and takes its time."""

    shutdown_timeout: float = 60.0
    stuck: bool = False
    seen: list[str] = field(default_factory=list[str])
    left: anyio.Event = field(default_factory=anyio.Event)

    async def aclose(self) -> None:
        self.seen.append("closing")
        if self.stuck:
            await self.left.wait()
        else:
            self.seen.append("closed")

    def record(self) -> None:
        self.seen.append("recorded")
        self.left.set()


def leave(status: int) -> NoReturn:
    raise Left(status)


def within(error: BaseException) -> Iterable[BaseException]:
    return error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)


async def for_ever(_: Callable[[], None]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await anyio.sleep_forever()


async def test_a_signal_ends_the_work_and_closes_what_there_is() -> None:
    parts = Parts()
    with anyio.fail_after(10):
        assert await run_until_shutdown(for_ever, parts, leave) == 143
    assert parts.seen == ["closing", "closed"]


async def test_work_that_ends_by_itself_is_no_failure() -> None:
    async def work(ended: Callable[[], None]) -> None:
        ended()

    parts = Parts()
    assert await run_until_shutdown(work, parts, leave) == 0
    assert parts.seen == ["closing", "closed"]


async def test_what_takes_too_long_is_left_once_it_is_written_down() -> None:
    parts = Parts(shutdown_timeout=0.0, stuck=True)
    with anyio.fail_after(10), pytest.raises(BaseException) as left:  # noqa: PT011  a group, or what is in it
        await run_until_shutdown(for_ever, parts, leave)
    assert [str(error) for error in within(left.value)] == ["143"]
    assert parts.seen == ["closing", "recorded"]


async def test_a_second_signal_ends_the_process_at_once() -> None:
    class Impatient(Parts):
        async def aclose(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            await super().aclose()

    parts = Impatient(stuck=True)
    with anyio.fail_after(10), pytest.raises(BaseException) as left:  # noqa: PT011  a group, or what is in it
        await run_until_shutdown(for_ever, parts, leave)
    assert [str(error) for error in within(left.value)] == ["143"]
    assert parts.seen == ["closing", "recorded"]


async def test_a_signal_that_the_parent_has_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work(_: Callable[[], None]) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await anyio.sleep(0)

    try:
        assert await run_until_shutdown(work, Parts(), leave) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
