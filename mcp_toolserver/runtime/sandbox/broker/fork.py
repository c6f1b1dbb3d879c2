"""What forks of the broker do: run and exit, close what they do not need, and handle signals.

Python ignores SIGPIPE, and a server may have been started with more of them ignored; a program started from
here must not inherit that. The broker puts everything back once, so that a fork has little left to do.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_in_fork(work: Callable[[], None]) -> NoReturn:
    """Run `work` in this fork, then exit without running any cleanup of the parent process."""
    status = 1
    try:
        work()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


def close_all_but(*descriptors: int) -> None:
    """Close what came from the server, but `descriptors` and standard error.

    Standard input and output may be the client's: held open here, they would hide the server's death.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(nothing, 2)
    if sys.platform == "darwin":
        # There, the limit may be none at all, and a call for each number would not come to an end.
        above = max(map(int, os.listdir("/dev/fd"))) + 1
    else:
        above = os.sysconf("SC_OPEN_MAX")
    low = 3
    for descriptor in sorted(descriptors):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, above)


def restore_defaults() -> None:
    """Restore each signal to its action in a program started from a shell."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def handle_polite(action: signal.Handlers) -> None:
    """Ignore requests to end, because a supervisor ends only after its command; or undo that, which a program
    would inherit."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, action)


def wake_on_child_end() -> int:
    """A descriptor that becomes readable when a child ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return reading


def drain(descriptor: int) -> None:
    """Clear the pending wake-ups; the caller then looks for ended children."""
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)
