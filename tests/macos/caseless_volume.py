"""A file system that ignores case and normal form in names, as a volume of macOS does, over a folder.

The kernel speaks the FUSE protocol (<linux/fuse.h>, version 7.31) with this program, which keeps each name as
it was given and finds it by every other one. Nothing is cached, so every look-up reaches it. The kernel
itself ignores a rename that changes only the case of a name. Needs root and /dev/fuse.

Run as a module with a folder and a mount point, it serves until its input ends.
"""

import ctypes
import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Generator
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

_IGNORED = frozenset(
    map(chr, (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
)
"""What HFS+ ignores in names (Apple, Technical Note TN1150)."""


def same_form(name: str) -> str:
    """One form for all names of a file."""
    visible = "".join(character for character in name if character not in _IGNORED)
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", visible).casefold())


class _Refused(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class _Server:
    def __init__(self, device: int, folder: str) -> None:
        self._device = device
        self._nodes = {1: os.open(folder, os.O_PATH | os.O_DIRECTORY)}
        top = os.fstat(self._nodes[1])
        self._ids = {(top.st_dev, top.st_ino): 1}
        self._uses: dict[int, int] = {}
        self._next = 2
        self._folders: dict[int, list[tuple[int, int, bytes]]] = {}
        self._next_folder = 1

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, _MOST + 4096)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENOENT:  # the caller gave up
                    continue
                return  # unmounted
            _, code, unique, node, uid, gid, _, _ = _IN.unpack_from(request)
            body = request[_IN.size :]
            if code in (2, 36, 42):
                self._forget(code, node, body)
                continue
            try:
                answer, status = self._answer(code, node, (uid, gid), body), 0
            except _Refused as refused:
                answer, status = b"", -refused.number
            except OSError as error:
                answer, status = b"", -(error.errno or errno.EIO)
            with suppress(FileNotFoundError):
                os.write(self._device, _OUT.pack(_OUT.size + len(answer), status, unique) + answer)

    def _answer(self, code: int, node: int, user: tuple[int, int], body: bytes) -> bytes:
        name = _OPERATIONS.get(code)
        if name is None:
            raise _Refused(errno.ENOSYS)
        operation: Callable[[int, tuple[int, int], bytes], bytes] = getattr(self, name)
        return operation(node, user, body)

    # --- names ---

    def _path(self, node: int) -> str:
        return f"/proc/self/fd/{self._nodes[node]}"

    def _stored(self, node: int, name: bytes) -> str:
        """The stored name in a folder. Raises: _Refused: there is none."""
        wanted = os.fsdecode(name)
        with suppress(OSError):
            os.stat(wanted, dir_fd=self._nodes[node], follow_symlinks=False)
            return wanted
        if len(name) > 255:
            raise _Refused(errno.ENAMETOOLONG)
        form = same_form(wanted)
        for stored in os.listdir(self._path(node)):
            if same_form(stored) == form:
                return stored
        raise _Refused(errno.ENOENT)

    def _free(self, node: int, name: bytes) -> str:
        """`name`, if nothing has it. Raises: _Refused: something has."""
        try:
            self._stored(node, name)
        except _Refused as refused:
            if refused.number != errno.ENOENT:
                raise
            return os.fsdecode(name)
        raise _Refused(errno.EEXIST)

    # --- nodes ---

    def _entry(self, node: int, name: str) -> bytes:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._nodes[node])
        status = os.fstat(found)
        key = status.st_dev, status.st_ino
        known = self._ids.get(key)
        if known is None:
            known, self._next = self._next, self._next + 1
            self._ids[key] = known
            self._nodes[known] = found
        else:
            os.close(found)
        self._uses[known] = self._uses.get(known, 0) + 1
        return struct.pack("=QQQQII", known, 0, 0, 0, 0, 0) + _attributes(status)

    def _forget(self, code: int, node: int, body: bytes) -> None:
        if code == 2:
            pairs = [(node, struct.unpack_from("=Q", body)[0])]
        elif code == 42:
            (count,) = struct.unpack_from("=I", body)
            pairs = [struct.unpack_from("=QQ", body, 8 + 16 * index) for index in range(count)]
        else:
            return
        for gone, uses in pairs:
            self._uses[gone] = self._uses.get(gone, 0) - uses
            if gone != 1 and self._uses[gone] <= 0:
                del self._uses[gone]
                descriptor = self._nodes.pop(gone)
                status = os.fstat(descriptor)
                self._ids.pop((status.st_dev, status.st_ino), None)
                os.close(descriptor)

    def _made(self, node: int, name: str, user: tuple[int, int]) -> bytes:
        os.chown(name, *user, dir_fd=self._nodes[node], follow_symlinks=False)
        return self._entry(node, name)

    # --- operations ---

    def init(self, _node: int, _user: tuple[int, int], body: bytes) -> bytes:
        major, _minor, readahead, flags = struct.unpack_from("=IIII", body)
        wanted = flags & (1 << 5 | 1 << 22)  # writes of several pages
        return struct.pack(
            "=IIIIHHIIHHI28x", major, 31, readahead, wanted, 16, 12, _MOST, 1, _MOST // 4096, 0, 0
        )

    def lookup(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        return self._entry(node, self._stored(node, body.rstrip(b"\0")))

    def getattr(self, node: int, _user: tuple[int, int], _body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + _attributes(os.fstat(self._nodes[node]))

    def setattr(self, node: int, user: tuple[int, int], body: bytes) -> bytes:
        fields = struct.unpack_from("=IIQQQQQQIIIIIIII", body)
        valid, _, _, size, _, atime, mtime, _, atimensec, mtimensec, _, mode, _, uid, gid, _ = fields
        path = self._path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(path, size)
        if valid & 0x1B0:
            before = os.stat(path)
            now = None if valid & 0x180 else 0
            given = (
                atime * 10**9 + atimensec if valid & 16 else before.st_atime_ns,
                mtime * 10**9 + mtimensec if valid & 32 else before.st_mtime_ns,
            )
            os.utime(path) if now is None else os.utime(path, ns=given)
        return self.getattr(node, user, body)

    def readlink(self, node: int, _user: tuple[int, int], _body: bytes) -> bytes:
        return os.fsencode(os.readlink("", dir_fd=self._nodes[node]))

    def symlink(self, node: int, user: tuple[int, int], body: bytes) -> bytes:
        name, target = body.split(b"\0")[:2]
        free = self._free(node, name)
        os.symlink(os.fsdecode(target), free, dir_fd=self._nodes[node])
        return self._made(node, free, user)

    def mknod(self, node: int, user: tuple[int, int], body: bytes) -> bytes:
        mode, device, _, _ = struct.unpack_from("=IIII", body)
        free = self._free(node, body[16:].rstrip(b"\0"))
        os.mknod(free, mode, device, dir_fd=self._nodes[node])
        return self._made(node, free, user)

    def mkdir(self, node: int, user: tuple[int, int], body: bytes) -> bytes:
        (mode,) = struct.unpack_from("=I", body)
        free = self._free(node, body[8:].rstrip(b"\0"))
        os.mkdir(free, mode, dir_fd=self._nodes[node])
        return self._made(node, free, user)

    def unlink(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        os.unlink(self._stored(node, body.rstrip(b"\0")), dir_fd=self._nodes[node])
        return b""

    def rmdir(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        os.rmdir(self._stored(node, body.rstrip(b"\0")), dir_fd=self._nodes[node])
        return b""

    def rename(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        (other,) = struct.unpack_from("=Q", body)
        return self._renamed(node, other, 0, body[8:])

    def rename2(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        other, flags, _ = struct.unpack_from("=QII", body)
        return self._renamed(node, other, flags, body[16:])

    def _renamed(self, node: int, other: int, flags: int, names: bytes) -> bytes:
        first, second = names.split(b"\0")[:2]
        old, new = self._stored(node, first), os.fsdecode(second)
        with suppress(_Refused):
            target = self._stored(other, second)
            # A file may change the case of its own name.
            if (node, target) != (other, old):
                new = target
        folders = self._nodes[node], self._nodes[other]
        done = _LIBC.renameat2(
            folders[0], os.fsencode(old), folders[1], os.fsencode(new), ctypes.c_uint(flags)
        )
        if done != 0:
            raise _Refused(ctypes.get_errno())
        return b""

    def link(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        (old,) = struct.unpack_from("=Q", body)
        free = self._free(node, body[8:].rstrip(b"\0"))
        os.link(self._path(old), free, dst_dir_fd=self._nodes[node], follow_symlinks=True)
        return self._entry(node, free)

    def open(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        (flags,) = struct.unpack_from("=I", body)
        kept = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND)
        opened = os.open(self._path(node), kept)
        return struct.pack("=QII", opened, 0, 0)

    def create(self, node: int, user: tuple[int, int], body: bytes) -> bytes:
        flags, mode = struct.unpack_from("=II", body)
        free = self._free(node, body[16:].rstrip(b"\0"))
        opened = os.open(
            free,
            (flags & ~os.O_APPEND) | os.O_CREAT | os.O_EXCL,
            stat.S_IMODE(mode),
            dir_fd=self._nodes[node],
        )
        return self._made(node, free, user) + struct.pack("=QII", opened, 0, 0)

    def read(self, _node: int, _user: tuple[int, int], body: bytes) -> bytes:
        opened, offset, size = struct.unpack_from("=QQI", body)
        return os.pread(opened, size, offset)

    def write(self, _node: int, _user: tuple[int, int], body: bytes) -> bytes:
        opened, offset, size = struct.unpack_from("=QQI", body)
        return struct.pack("=II", os.pwrite(opened, body[40 : 40 + size], offset), 0)

    def release(self, _node: int, _user: tuple[int, int], body: bytes) -> bytes:
        os.close(struct.unpack_from("=Q", body)[0])
        return b""

    def nothing(self, _node: int, _user: tuple[int, int], _body: bytes) -> bytes:
        """What needs no work: the folder below keeps all data already."""
        return b""

    def opendir(self, _node: int, _user: tuple[int, int], _body: bytes) -> bytes:
        number, self._next_folder = self._next_folder, self._next_folder + 1
        return struct.pack("=QII", number, 0, 0)

    def _listed(self, node: int) -> list[tuple[int, int, bytes]]:
        """Of each entry the inode, the kind and the name."""
        with os.scandir(self._path(node)) as entries:
            return [
                (entry.inode(), entry.stat(follow_symlinks=False).st_mode >> 12, os.fsencode(entry.name))
                for entry in entries
            ]

    def readdir(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        number, offset, size = struct.unpack_from("=QQI", body)
        answer = b""
        if offset == 0:
            self._folders[number] = self._listed(node)
        for position, (inode, kind, name) in enumerate(self._folders[number][offset:], offset + 1):
            entry = struct.pack("=QQII", inode, position, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def releasedir(self, _node: int, _user: tuple[int, int], body: bytes) -> bytes:
        self._folders.pop(struct.unpack_from("=Q", body)[0], None)
        return b""

    def statfs(self, node: int, _user: tuple[int, int], _body: bytes) -> bytes:
        found = os.statvfs(self._path(node))
        return struct.pack(
            "=QQQQQIII28x",
            *(found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree),
            *(found.f_bsize, found.f_namemax, found.f_frsize),
        )

    def setxattr(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        size, flags = struct.unpack_from("=II", body)
        name, _, value = body[8:].partition(b"\0")
        os.setxattr(self._path(node), name, value[:size], flags)
        return b""

    def getxattr(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        if stat.S_ISLNK(os.fstat(self._nodes[node]).st_mode):
            raise _Refused(errno.ENODATA)
        return _sized(body, os.getxattr(self._path(node), body[8:].rstrip(b"\0")))

    def listxattr(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        return _sized(body, b"".join(os.fsencode(name) + b"\0" for name in os.listxattr(self._path(node))))

    def removexattr(self, node: int, _user: tuple[int, int], body: bytes) -> bytes:
        os.removexattr(self._path(node), body.rstrip(b"\0"))
        return b""


_OPERATIONS = {
    1: "lookup",
    3: "getattr",
    4: "setattr",
    5: "readlink",
    6: "symlink",
    8: "mknod",
    9: "mkdir",
    10: "unlink",
    11: "rmdir",
    12: "rename",
    13: "link",
    14: "open",
    15: "read",
    16: "write",
    17: "statfs",
    18: "release",
    20: "nothing",
    21: "setxattr",
    22: "getxattr",
    23: "listxattr",
    24: "removexattr",
    25: "nothing",
    26: "init",
    27: "opendir",
    28: "readdir",
    29: "releasedir",
    30: "nothing",
    35: "create",
    38: "nothing",
    45: "rename2",
}
"""By opcode; FORGET, INTERRUPT and BATCH_FORGET get no answer."""


def _attributes(status: os.stat_result) -> bytes:
    times = [status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]
    return struct.pack(
        "=QQQQQQIIIIIIIIII",
        *(status.st_ino, status.st_size, status.st_blocks),
        *(time // 10**9 for time in times),
        *(time % 10**9 for time in times),
        *(status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_rdev, 4096, 0),
    )


def _sized(body: bytes, value: bytes) -> bytes:
    """The value, or its size where the caller gives no room."""
    (size,) = struct.unpack_from("=I", body)
    if size == 0:
        return struct.pack("=II", len(value), 0)
    if size < len(value):
        raise _Refused(errno.ERANGE)
    return value


def _mount(device: int, place: str) -> None:
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if _LIBC.mount(b"caseless", os.fsencode(place), b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(folder: str, place: str) -> None:
    """Mount and serve until the input ends; then the kernel fails everything that is still waiting."""
    os.umask(0)
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
    "other-case]": "there, F is another name of f",
    "test_commands_see_nothing_that_is_kept": _REFUSED,
    "test_a_bare_repository_that_a_worktree_belongs_to_is_protected": _REFUSED,
    "test_a_file_that_somebody_replaces_meanwhile_is_reported": _REFUSED,
    "test_a_new_repository_stays_when_git_is_writable": _REFUSED,
    "test_a_worktree_commits_when_git_is_writable": _REFUSED,
    "test_the_folder_that_a_git_file_points_to_is_protected": _REFUSED,
    "test_what_is_planted_in_a_repository_is_set_aside": _REFUSED,
    "test_what_makes_git_run_programs_stays_read_only": _REFUSED,
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
