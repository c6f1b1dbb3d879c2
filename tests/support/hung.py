"""A file system that does not answer, as a network mount whose server is gone."""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from threading import Thread

import pytest

_DETACH = 2

_FOLDER, _FILE = 1, 2
"""The folder that is mounted, and the file `f` in it."""

_SECONDS = 60
"""How long the kernel may keep an answer."""


class _Operation:
    """Numbers of linux/fuse.h."""

    LOOKUP, FORGET, GETATTR, OPEN, INIT, INTERRUPT, FORGET_MANY = 1, 2, 3, 14, 26, 36, 42
    OPENDIR, READDIR, RELEASEDIR = 27, 28, 29


_UNANSWERED = (
    _Operation.OPEN,
    # The kernel wants no answer to these.
    *(_Operation.FORGET, _Operation.INTERRUPT, _Operation.FORGET_MANY),
)


@contextmanager
def hung_mount(folder: Path, *, answers_look_ups: bool = False) -> Generator[None]:
    """A FUSE file system on `folder` that nobody serves: who looks into it waits until the context ends.

    With `answers_look_ups` it has the file `f`, which no list of the folder names, and only who opens that
    waits.

    Skips the test where this machine lets nobody mount one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    end, ended = os.pipe()
    thread = Thread(target=_answer_look_ups, args=(server, end))
    try:
        if libc.mount(b"test", str(folder).encode(), b"fuse", 0, options.encode()):
            pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
        if answers_look_ups:
            thread.start()
        try:
            yield
        finally:
            libc.umount2(str(folder).encode(), _DETACH)
    finally:
        os.close(ended)
        if answers_look_ups:
            thread.join()
        os.close(end)
        # Now everybody who waits gets an error.
        os.close(server)


def _answer_look_ups(server: int, end: int) -> None:
    while server in select([server, end], [], [])[0]:
        try:
            request = os.read(server, 1 << 18)
        except OSError:
            # It is no longer mounted.
            return
        operation, unique, node = struct.unpack_from("=4xIQQ", request)
        if operation in _UNANSWERED:
            continue
        error, body = _answer(operation, node, request[40:].rstrip(b"\0"))
        # Who asked may have given up.
        with suppress(OSError):
            os.write(server, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)


def _answer(operation: int, node: int, name: bytes) -> tuple[int, bytes]:
    match operation:
        case _Operation.LOOKUP if name != b"f":
            return errno.ENOENT, b""
        case _Operation.LOOKUP:
            return 0, struct.pack("=QQQQII", _FILE, 0, _SECONDS, _SECONDS, 0, 0) + _attributes(_FILE)
        case _Operation.GETATTR:
            return 0, struct.pack("=QII", _SECONDS, 0, 0) + _attributes(node)
        case _Operation.INIT:
            return 0, struct.pack("=IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 16, 12, 1 << 16, 1, 1, 0, 0)
        case _Operation.OPENDIR:
            return 0, struct.pack("=QII", 0, 0, 0)
        case _Operation.READDIR | _Operation.RELEASEDIR:
            return 0, b""
        case _:
            return errno.ENOSYS, b""


def _attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == _FOLDER else stat.S_IFREG | 0o644
    return struct.pack("=6Q10I", node, 8, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
