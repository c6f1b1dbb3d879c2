"""The open files of the process that runs the tests."""

import gc
import os


def descriptors() -> set[str]:
    """Their numbers, without those that only wait for garbage collection."""
    gc.collect()
    return set(os.listdir("/proc/self/fd"))
