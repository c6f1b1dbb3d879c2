"""Signal handling of the broker, its supervisors and commands.

Python ignores SIGPIPE, and a server may have been started with more of them ignored; a program started from
here must not inherit that. The broker puts everything back once, so that a fork has little left to do.
"""

import contextlib
import os
import signal

POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def restore_defaults() -> None:
    """Restore each signal to its action in a program started from a shell."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def ignore_polite() -> None:
    """Ignore requests to end, because a supervisor ends only after its command."""
    for number in POLITE:
        signal.signal(number, signal.SIG_IGN)


def heed_polite() -> None:
    """Undo `ignore_polite`, which a program would inherit."""
    for number in POLITE:
        signal.signal(number, signal.SIG_DFL)


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
