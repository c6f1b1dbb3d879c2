"""The seam between what needs a program run and the broker that runs it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

Reason = Literal["exited", "timed out", "stopped", "over a limit", "unwalled", "lost"]
"""What ended a program."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a program ended."""

    status: int | None
    """0-255, or 128 + signal; None when the broker was lost."""
    reason: Reason
    detail: str = ""
    """The limit that ended it, in words that go on from "it used"; or why its walls could not be built."""
    notes: tuple[str, ...] = ()
    """What its reader should know beside: sentences."""


class Running(Protocol):
    """A program that runs under its own nanny."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Its standard output as it comes, at most 1 MiB at a time."""
        ...

    async def wait(self) -> Exit:
        """Returns when it and everything it started is gone."""
        ...

    def complaints(self) -> bytes:
        """The first 64 KiB of its standard error; whole after `wait`."""
        ...


class Launcher(Protocol):
    """Starts programs of our own choosing (never a command from a model) and reads what they print."""

    def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AbstractAsyncContextManager[Running]:
        """Start `argv` (absolute program path) in the folder open as descriptor `cwd`.

        Standard input is descriptor `stdin`, or empty. After `timeout` seconds the program is killed. Leaving
        the context kills it with all it started.

        Raises:
            Unavailable: the broker is gone or the program cannot be started.
        """
        ...
