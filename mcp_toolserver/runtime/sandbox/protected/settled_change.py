"""Whether the status change time of a folder tells of every later change in it."""

import os
import time

_SETTLED_NS = 2_000_000_000
"""A folder that changed less than this before it was listed may change again without a new time: kernels
before Linux 6.13 count in ticks of up to 10 ms, and some file systems in seconds."""

UNSETTLED = -1
"""Stands for the status change time of a folder that has to be listed again in any case."""


def settled_change(status: os.stat_result) -> int:
    """The status change time of a folder that is about to be listed, in nanoseconds since the epoch.

    `UNSETTLED` where the folder may still change without a new time.
    """
    return status.st_ctime_ns if time.time_ns() - status.st_ctime_ns > _SETTLED_NS else UNSETTLED
