"""A file system that ignores case and normal form in names, as a volume of macOS does, over a folder.

The kernel speaks the FUSE protocol (<linux/fuse.h>, version 7.31) with this program, which keeps each name as
it was given and finds it by every other one. Nothing is cached, so every look-up reaches it. The kernel does
without the operations that are missing, such as `create`, `flush` and `fsync`, and ignores a rename that
changes only the case of a name. Needs root and /dev/fuse.

Run as a module with a folder and a mount point, it serves until its input ends.
"""

import ctypes
import errno
import os
import resource
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Thread

import pytest

from tests import ROOT
from tests.support import confinement

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_IN = struct.Struct("=IIQQIIII")
_OUT = struct.Struct("=IiQ")
_MOST = 1 << 17
"""Bytes of one write."""
_FORGET = (2, 42)
"""The operations that get no answer. Nothing is forgotten: the volume lives for minutes."""

_IGNORED = frozenset(
    map(chr, (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
)
"""What HFS+ ignores in names (Apple, Technical Note TN1150)."""


def same_form(name: str) -> str:
    """One form for all names of a file."""
    visible = "".join(character for character in name if character not in _IGNORED)
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", visible).casefold())


class _Server:
    def __init__(self, device: int, folder: str) -> None:
        self._device = device
        self._top = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        top = os.fstat(self._top)
        # The number of a node is that of the descriptor that keeps it; for the top it is 1.
        self._nodes = {(top.st_dev, top.st_ino): 1}
        self._listed: dict[int, list[tuple[int, int, bytes]]] = {}
        self._user = (0, 0)
        self._operations = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            5: self._readlink,
            6: self._symlink,
            8: self._mknod,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: self._rename,
            13: self._link,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            21: self._setxattr,
            22: self._getxattr,
            23: self._listxattr,
            26: self._init,
            27: self._open,
            28: self._readdir,
            45: self._rename2,
        }

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, _MOST + 4096)
            except OSError as error:
                if error.errno == errno.ENOENT:  # the caller gave up
                    continue
                return  # unmounted
            _, code, unique, node, uid, gid, _, _ = _IN.unpack_from(request)
            if code in _FORGET:
                continue
            self._user, answer, status = (uid, gid), b"", -errno.ENOSYS
            if operation := self._operations.get(code):
                try:
                    answer, status = operation(node, request[_IN.size :]), 0
                except OSError as error:
                    status = -(error.errno or errno.EIO)
            with suppress(FileNotFoundError):
                os.write(self._device, _OUT.pack(_OUT.size + len(answer), status, unique) + answer)

    # --- names and nodes ---

    def _at(self, node: int) -> int:
        return self._top if node == 1 else node

    def _path(self, node: int) -> str:
        return f"/proc/self/fd/{self._at(node)}"

    def _stored(self, node: int, name: bytes) -> str:
        """The stored name in a folder. Raises: FileNotFoundError: there is none."""
        wanted = os.fsdecode(name.rstrip(b"\0"))
        try:
            os.stat(wanted, dir_fd=self._at(node), follow_symlinks=False)
        except FileNotFoundError:
            form = same_form(wanted)
            for stored in os.listdir(self._path(node)):
                if same_form(stored) == form:
                    return stored
            raise
        return wanted

    def _free(self, node: int, name: bytes) -> str:
        """`name`, if nothing has it. Raises: FileExistsError: something has."""
        with suppress(FileNotFoundError):
            self._stored(node, name)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return os.fsdecode(name.rstrip(b"\0"))

    def _entry(self, node: int, name: str) -> bytes:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._at(node))
        status = os.fstat(found)
        known = self._nodes.setdefault((status.st_dev, status.st_ino), found)
        if known != found:
            os.close(found)
        return struct.pack("=QQQQII", known, 0, 0, 0, 0, 0) + _attributes(status)

    def _made(self, node: int, name: str) -> bytes:
        os.chown(name, *self._user, dir_fd=self._at(node), follow_symlinks=False)
        return self._entry(node, name)

    # --- operations ---

    def _init(self, _node: int, body: bytes) -> bytes:
        major, _minor, readahead, _flags = struct.unpack_from("=IIII", body)
        big_writes = 1 << 5
        return struct.pack("=IIIIHHIIHHI28x", major, 31, readahead, big_writes, 16, 12, _MOST, 1, 0, 0, 0)

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(node, self._stored(node, body))

    def _getattr(self, node: int, _body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + _attributes(os.fstat(self._at(node)))

    def _setattr(self, node: int, body: bytes) -> bytes:
        fields = struct.unpack_from("=IIQQQQQQIIIIIIII", body)
        valid, _, _, size, _, atime, mtime, _, atimensec, mtimensec, _, mode, _, uid, gid, _ = fields
        path = self._path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(path, size)
        if valid & 0x180:
            os.utime(path)
        elif valid & 0x30:
            before = os.stat(path)
            accessed = atime * 10**9 + atimensec if valid & 16 else before.st_atime_ns
            changed = mtime * 10**9 + mtimensec if valid & 32 else before.st_mtime_ns
            os.utime(path, ns=(accessed, changed))
        return self._getattr(node, body)

    def _readlink(self, node: int, _body: bytes) -> bytes:
        return os.fsencode(os.readlink("", dir_fd=self._at(node)))

    def _symlink(self, node: int, body: bytes) -> bytes:
        name, target = body.split(b"\0")[:2]
        free = self._free(node, name)
        os.symlink(os.fsdecode(target), free, dir_fd=self._at(node))
        return self._made(node, free)

    def _mknod(self, node: int, body: bytes) -> bytes:
        mode, device = struct.unpack_from("=II", body)
        free = self._free(node, body[16:])
        os.mknod(free, mode, device, dir_fd=self._at(node))
        return self._made(node, free)

    def _mkdir(self, node: int, body: bytes) -> bytes:
        free = self._free(node, body[8:])
        os.mkdir(free, *struct.unpack_from("=I", body), dir_fd=self._at(node))
        return self._made(node, free)

    def _unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(self._stored(node, body), dir_fd=self._at(node))
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(self._stored(node, body), dir_fd=self._at(node))
        return b""

    def _rename(self, node: int, body: bytes) -> bytes:
        return self._renamed(node, *struct.unpack_from("=Q", body), 0, body[8:])

    def _rename2(self, node: int, body: bytes) -> bytes:
        return self._renamed(node, *struct.unpack_from("=QI", body), body[16:])

    def _renamed(self, node: int, other: int, flags: int, names: bytes) -> bytes:
        first, second = names.split(b"\0")[:2]
        old, new = self._stored(node, first), os.fsdecode(second)
        with suppress(FileNotFoundError):
            target = self._stored(other, second)
            # A file may change the case of its own name.
            if (node, target) != (other, old):
                new = target
        places = (self._at(node), os.fsencode(old), self._at(other), os.fsencode(new))
        if _LIBC.renameat2(*places, ctypes.c_uint(flags)) != 0:
            raise OSError(ctypes.get_errno(), "the rename failed")
        return b""

    def _link(self, node: int, body: bytes) -> bytes:
        (old,) = struct.unpack_from("=Q", body)
        free = self._free(node, body[8:])
        os.link(self._path(old), free, dst_dir_fd=self._at(node), follow_symlinks=True)
        return self._entry(node, free)

    def _open(self, _node: int, _body: bytes) -> bytes:
        """Nothing: reading and writing go to the node."""
        return struct.pack("=QII", 0, 0, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        with open(self._path(node), "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _write(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        with open(self._path(node), "r+b") as file:
            return struct.pack("=II", os.pwrite(file.fileno(), body[40 : 40 + size], offset), 0)

    def _readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        if offset == 0:
            with os.scandir(self._path(node)) as entries:
                self._listed[node] = [
                    (one.inode(), one.stat(follow_symlinks=False).st_mode >> 12, os.fsencode(one.name))
                    for one in entries
                ]
        answer = b""
        for position, (inode, kind, name) in enumerate(self._listed[node][offset:], offset + 1):
            entry = struct.pack("=QQII", inode, position, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _statfs(self, _node: int, _body: bytes) -> bytes:
        free = 1 << 20
        return struct.pack("=QQQQQIII28x", free, free, free, free, free, 4096, 255, 4096)

    def _setxattr(self, node: int, body: bytes) -> bytes:
        size, flags = struct.unpack_from("=II", body)
        name, _, value = body[8:].partition(b"\0")
        os.setxattr(self._path(node), name, value[:size], flags)
        return b""

    def _getxattr(self, node: int, body: bytes) -> bytes:
        if stat.S_ISLNK(os.fstat(self._at(node)).st_mode):
            raise OSError(errno.ENODATA, "a link has none")
        return _sized(body, os.getxattr(self._path(node), body[8:].rstrip(b"\0")))

    def _listxattr(self, node: int, body: bytes) -> bytes:
        return _sized(body, b"".join(os.fsencode(name) + b"\0" for name in os.listxattr(self._path(node))))


def _sized(body: bytes, value: bytes) -> bytes:
    """The value, or its size where the caller gives no room."""
    (size,) = struct.unpack_from("=I", body)
    if 0 < size < len(value):
        raise OSError(errno.ERANGE, "no room")
    return value if size else struct.pack("=II", len(value), 0)


def _attributes(status: os.stat_result) -> bytes:
    times = [status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]
    return struct.pack(
        "=QQQQQQIIIIIIIIII",
        *(status.st_ino, status.st_size, status.st_blocks),
        *(time // 10**9 for time in times),
        *(time % 10**9 for time in times),
        *(status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_rdev, 4096, 0),
    )


def _mount(device: int, place: str) -> None:
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if _LIBC.mount(b"caseless", os.fsencode(place), b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(folder: str, place: str) -> None:
    """Mount and serve until the input ends; then the kernel fails everything that is still waiting."""
    os.umask(0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    _mount(device, place)
    Thread(target=_Server(device, folder).serve, daemon=True).start()
    print("mounted", flush=True)
    sys.stdin.read()
    os._exit(0)


@contextmanager
def mounted() -> Generator[Path]:
    """A new volume, empty, in a folder that commands can see.

    It is unmounted in any case, and nothing waits for a program that still uses it.
    """
    base = Path(tempfile.mkdtemp(prefix="mcp-toolserver-caseless-", dir="/srv"))
    base.chmod(0o755)
    below, place = base / "below", base / "volume"
    below.mkdir()
    place.mkdir()
    command = [sys.executable, "-m", "tests.macos.caseless_volume", str(below), str(place)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environ
        ) as server:
            try:
                assert server.stdout is not None
                if server.stdout.readline() != b"mounted\n":
                    raise OSError("the volume could not be mounted")
                yield place
            finally:
                _LIBC.umount2(os.fsencode(place), _MNT_DETACH)
                server.kill()
    finally:
        shutil.rmtree(below)
        place.rmdir()
        base.rmdir()


_REFUSED = "no command runs with a protected file there, because a mount covers one of its names only"

EXPECTED = {
    "test_a_spelling_in_another_case": "there, F is another name of f",
    "test_commands_see_nothing_that_is_kept": _REFUSED,
    "test_what_makes_git_run_programs_in_a_module_stays_read_only": _REFUSED,
}
"""The tests that fail on the volume, each with the reason."""


def use(config: pytest.Config) -> None:
    """Put the folders of all tests of this run on a volume."""
    if why := why_not():
        pytest.exit(f"--caseless: {why}", 3)
    volume = ExitStack()
    place = volume.enter_context(mounted())
    config.add_cleanup(volume.close)
    config.option.basetemp = str(place / "pytest")
    confinement.VISIBLE = (str(place), *confinement.VISIBLE)


def expect(item: pytest.Item) -> None:
    """Expect the test to fail if `EXPECTED` says so."""
    for part, reason in EXPECTED.items():
        if part in item.nodeid:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@cache
def why_not() -> str:
    """Why no volume can be mounted here; empty if one can."""
    if sys.platform != "linux":
        return "only Linux lets this program be a file system"
    if os.geteuid() != 0:
        return "only root may mount"
    try:
        with mounted():
            return ""
    except OSError as error:
        return f"FUSE cannot be mounted here: {error}"


if __name__ == "__main__":
    main(*sys.argv[1:])
