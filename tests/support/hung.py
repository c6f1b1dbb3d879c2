"""A file system that does not answer, as a network mount whose server is gone."""

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DETACH = 2


@contextmanager
def hung_mount(folder: Path) -> Generator[None]:
    """A FUSE file system on `folder` that nobody serves: who looks into it waits until the context ends.

    Skips the test where this machine lets nobody mount one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    try:
        if libc.mount(b"test", str(folder).encode(), b"fuse", 0, options.encode()):
            pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.umount2(str(folder).encode(), _DETACH)
    finally:
        os.close(server)
