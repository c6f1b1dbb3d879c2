"""The end of a process: a signal or the client brings it about once, and it comes within a moment.

What runs is cancelled, which writes it down and kills its processes. What is not through by then is left to
the broker, which goes on killing when this process is gone; the record is complete all the same.
"""

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import anyio
from anyio.abc import TaskStatus

Leave = Callable[[int], NoReturn]
"""Ends the process at once, with an exit status."""


class Closing(Protocol):
    """What has to be closed at the end."""

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that the end may take, from the signal on."""
        ...

    async def aclose(self) -> None:
        """Close all of it."""
        ...

    def record(self) -> None:
        """Write down what still runs. May be called twice."""
        ...


@dataclass(kw_only=True)
class _Shutdown:
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """What it cancels."""
    begun: anyio.Event = field(default_factory=anyio.Event)
    status: int = 0

    def begin(self) -> None:
        """It comes by itself."""
        self.begun.set()

    def signalled(self, number: int) -> None:
        """It comes by a signal."""
        self.status = 128 + number
        self.begun.set()
        self.scope.cancel()


async def run_until_shutdown(
    work: Callable[[Callable[[], None]], Awaitable[None]], closing: Closing, leave: Leave
) -> int:
    """Do `work` until it is done or a signal comes, and close; the exit status.

    `work` gets a function to call when it begins to end by itself: from then on time counts. A second signal
    ends the process at once.
    """
    end = _Shutdown()

    def force_exit() -> NoReturn:
        closing.record()
        leave(end.status)

    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, end, force_exit)
        tasks.start_soon(_force_exit_after, end, closing, force_exit)
        try:
            with end.scope:
                await work(end.begin)
        finally:
            end.begin()
            with anyio.CancelScope(shield=True):
                await closing.aclose()
        tasks.cancel_scope.cancel()
    return end.status


async def _watch_signals(
    end: _Shutdown, force_exit: Callable[[], NoReturn], *, task_status: TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(*_handled_signals()) as received:
        task_status.started()
        async for number in received:
            if end.begun.is_set():
                force_exit()
            end.signalled(number)


def _handled_signals() -> list[signal.Signals]:
    """The signals that end a process, without those that its parent has it ignore, as nohup does."""
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [one for one in every if signal.getsignal(one) is not signal.SIG_IGN]


async def _force_exit_after(end: _Shutdown, closing: Closing, force_exit: Callable[[], NoReturn]) -> None:
    await end.begun.wait()
    await anyio.sleep(closing.shutdown_timeout)
    force_exit()
