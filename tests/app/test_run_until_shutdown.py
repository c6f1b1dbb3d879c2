"""What a second signal and an ignored one do to a process; `test_shutdown.py` has the rest."""

import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
import pytest

from mcp_toolserver.app.serve import run_until_shutdown


class Left(BaseException):
    """Stands for the end of the process."""


def leave(status: int) -> NoReturn:
    raise Left(status)


class Stuck:
    """What is to be closed, gets another signal meanwhile, and is closed only when that is written down."""

    shutdown_timeout = 60.0

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.left = anyio.Event()

    async def aclose(self) -> None:
        self.seen.append("closing")
        os.kill(os.getpid(), signal.SIGINT)
        await self.left.wait()

    def record(self) -> None:
        self.seen.append("recorded")
        self.left.set()


async def test_a_second_signal_ends_the_process_at_once() -> None:
    async def for_ever(_: Callable[[], None]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()

    parts: Any = Stuck()
    ended = pytest.RaisesExc(Left, match="^143$")
    with anyio.fail_after(10), pytest.RaisesGroup(ended, allow_unwrapped=True, flatten_subgroups=True):
        await run_until_shutdown(for_ever, parts, leave)
    assert parts.seen == ["closing", "recorded"]


async def test_a_signal_that_the_parent_has_ignored_stays_ignored() -> None:
    class Nothing(Stuck):
        async def aclose(self) -> None: ...

    nothing: Any = Nothing()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work(_: Callable[[], None]) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await anyio.sleep(0)

    try:
        assert await run_until_shutdown(work, nothing, leave) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
