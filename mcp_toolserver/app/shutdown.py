"""Graceful shutdown: a signal or the end of input starts it, and a timeout bounds it.

Running calls are cancelled, which records them and kills their processes. If the timeout expires first, the
server records the remaining calls and exits; the broker then kills the remaining processes.
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
    """The parts to close at shutdown."""

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that shutdown may take."""
        ...

    async def aclose(self) -> None:
        """Close all parts."""
        ...

    def record(self) -> None:
        """Record the running calls as cancelled. May be called twice."""
        ...


@dataclass(kw_only=True)
class _Shutdown:
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled by a signal."""
    begun: anyio.Event = field(default_factory=anyio.Event)
    status: int = 0

    def begin(self) -> None:
        """Begin without a signal."""
        self.begun.set()

    def signalled(self, number: int) -> None:
        """Begin by a signal: cancel the work."""
        self.status = 128 + number
        self.begun.set()
        self.scope.cancel()


async def run_until_shutdown(
    work: Callable[[Callable[[], None]], Awaitable[None]], closing: Closing, leave: Leave
) -> int:
    """Run `work` until it ends or a signal arrives, then close `closing`; returns the exit status.

    `work` gets a function to call when its input ends: the timeout starts then. A second signal ends the
    process at once.
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
    """The signals that end a process, except those that its parent made it ignore, as nohup does."""
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [one for one in every if signal.getsignal(one) is not signal.SIG_IGN]


async def _force_exit_after(end: _Shutdown, closing: Closing, force_exit: Callable[[], NoReturn]) -> None:
    await end.begun.wait()
    await anyio.sleep(closing.shutdown_timeout)
    force_exit()
