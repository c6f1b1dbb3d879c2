"""What every fork of the broker does at its start and at its end."""

import os
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


def close_all_but(descriptor: int) -> None:
    """Close what came from the server, but `descriptor` and standard error.

    Standard input and output may be the client's: held open here, they would hide the server's death.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(nothing, 2)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, _first_unused())


def _first_unused() -> int:
    """The number above all open descriptors."""
    if sys.platform == "darwin":
        # There, the limit may be none at all, and a call for each number would not come to an end.
        return max(map(int, os.listdir("/dev/fd"))) + 1
    return os.sysconf("SC_OPEN_MAX")
