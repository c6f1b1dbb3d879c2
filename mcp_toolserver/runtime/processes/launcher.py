"""The seam between what needs a program run and the broker that runs it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.errors import SandboxUnavailable

Reason = Literal[
    "exited", "timed out", "stopped", "over a limit", "uncovered", "sandbox_failed", "unverified", "lost"
]
"""What ended a program: for the last three it is not known what it did."""

UNVERIFIED: tuple[Reason, ...] = ("unverified", "lost")
"""Nobody could tell what became of protected names."""

NOT_VERIFIED = (
    "its supervisor could not report, so protected names (.git, .vscode, .envrc and the like) could not be "
    "verified; the user should look at them before using the folder"
)


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a program ended."""

    status: int | None
    """0-255, or 128 + signal; None when the broker was lost."""
    reason: Reason
    detail: str = ""
    """The limit that ended it, in words that go on from "it used"; or why its sandbox could not be set up; or
    what they did not protect any more."""
    notes: tuple[str, ...] = ()
    """What its reader should know as well: sentences."""


_GAVE_UP = 1
"""Exit status of a bubblewrap that could not set up the sandbox. One that was killed has another, and its
command may have run."""


class SetupFailed(SandboxUnavailable):
    """The sandbox could not be set up, and nothing was run in it. A second attempt may succeed: a socket that
    was to be masked may have gone meanwhile."""


def sandbox_error(exit_status: int | None, detail: str) -> SandboxUnavailable:
    """The error for a program whose sandbox failed; `SetupFailed` if it certainly has not run."""
    return (SetupFailed if exit_status == _GAVE_UP else SandboxUnavailable)(detail)


class Running(Protocol):
    """A program that runs under its own supervisor."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Its standard output as it comes, at most 1 MiB at a time."""
        ...

    async def wait(self) -> Exit:
        """Returns when it and everything it started is gone."""
        ...

    def stderr(self) -> bytes:
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
