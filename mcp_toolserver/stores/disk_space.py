"""Preallocates disk space for a file that must be able to grow when the disk is full."""

import ctypes
import os
import sys

_KEEP_SIZE = 1
"""`FALLOC_FL_KEEP_SIZE`: the file size stays the same, so readers and appenders notice nothing."""

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the block size of the file system."""


def preallocate(descriptor: int, offset: int, size: int) -> bool:
    """Reserve `size` bytes from `offset` for an open file; false if that is not possible."""
    if sys.platform != "linux":
        return False
    # `os.posix_fallocate` would extend the file.
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    code: int = fallocate(descriptor, _KEEP_SIZE, offset, size)
    return code == 0


def preallocated_bytes(descriptor: int) -> int:
    """Return about how many bytes are reserved beyond the end of an open file."""
    status = os.fstat(descriptor)
    return max(status.st_blocks * _BLOCK_BYTES - status.st_size, 0)
