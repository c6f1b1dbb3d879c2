"""Asking the broker for a program, with the pipes that lead to it."""

import contextlib
import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from mcp_toolserver.runtime.processes.broker_client import Broker, Streams, unstartable
from mcp_toolserver.runtime.sandbox.broker.messages import Request

CHUNK = 1 << 20
"""Bytes asked of a pipe at once, and its size where the kernel grants it."""


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """Our ends of what leads to a program."""

    control: socket.socket
    output: int
    errors: int | None
    """None when standard error goes the way of standard output, which keeps the order of the two."""


def spawn(
    broker: Broker, request: Request, *, cwd: int, stdin: int | None = None, separate_stderr: bool = False
) -> Spawned:
    """Ask for a program in the folder `cwd`; `separate_stderr` gives standard error a pipe of its own.

    Raises:
        Unavailable: no program can be started.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        try:
            stdin = _dev_null(theirs) if stdin is None else stdin
            output, stdout = _pipe(ours, theirs)
            errors, stderr = _pipe(ours, theirs) if separate_stderr else (None, stdout)
        except OSError as error:
            raise unstartable(error) from None
        streams = Streams(cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
        control = broker.spawn(request, streams)
        ours.pop_all()
        return Spawned(control=control, output=output, errors=errors)


def _dev_null(theirs: ExitStack) -> int:
    stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    theirs.callback(os.close, stdin)
    return stdin


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """A pipe from a program to us: the end to read, which does not block, and the end it writes to."""
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    os.set_blocking(reading, False)
    # Not everywhere where this module is imported, but wherever there is a broker.
    import fcntl

    # An unprivileged user may have only so many large pipes; a small one works as well.
    with contextlib.suppress(OSError, AttributeError):
        # Only Linux has it.
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, CHUNK)
    return reading, writing
