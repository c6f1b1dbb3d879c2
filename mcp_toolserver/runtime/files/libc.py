"""System calls on files that Python does not offer, through the C library."""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from functools import cache

_OPENAT2 = 437
"""The same number on every architecture that Python runs on."""

_HOW = struct.Struct("=QQQ")
"""`struct open_how`: flags, mode, resolve."""

_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08

_ATTEMPTS = 64
"""The kernel answers EAGAIN when a rename races with a `..`; to try again is the documented way."""

_RENAMES = {"linux": ("renameat2", 1), "darwin": ("renameatx_np", 4)}
"""By system, the function that renames and the flag that refuses an existing name: RENAME_NOREPLACE of
<linux/fs.h>, RENAME_EXCL of <sys/stdio.h> of macOS (rename(2): not on every volume, else ENOTSUP)."""

_COPYFILE_ACL, _COPYFILE_XATTR = 1 << 0, 1 << 2
"""From <copyfile.h> of macOS."""

_STATFS_BYTES = 256
"""More than `struct statfs` has anywhere; its first member is the type."""

_SYNTHETIC = frozenset(
    {
        0x9FA0,  # proc
        0x62656572,  # sysfs
        0x64626720,  # debugfs
        0x74726163,  # tracefs
        0x73636673,  # securityfs
        0x62656570,  # configfs
        0x0027E0EB,  # cgroup
        0x63677270,  # cgroup2
        0xCAFE4A11,  # bpf
        0x6165676C,  # pstore
        0xDE5E81E4,  # efivarfs
        0xF97CFF8C,  # selinuxfs
        0x43415D53,  # smackfs
        0x5A3C69F0,  # apparmorfs
        0x42494E4D,  # binfmt_misc
        0x65735543,  # fusectl
        0x19800202,  # mqueue
        0x1CD1,  # devpts
        0x6E736673,  # nsfs
    }
)
"""Virtual file systems: the kernel generates their files on reading, so sizes are wrong and reads may
block or have effects."""


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    # Those of `openat2`, declared once: converting them at every call would cost more than the call.
    types = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    library.syscall.argtypes, library.syscall.restype = types, ctypes.c_long
    return library


def openat2(folder: int, path: str, flags: int, *, links: bool = True) -> int:
    """`openat` of what exists, where neither `..` nor a link leads out of `folder`, and no link of /proc
    jumps.

    Raises:
        OSError: EXDEV when the path leads out or to another mount, ELOOP when it has a link and `links` is
            false, ENOSYS where the kernel does not have it.
    """
    resolve = (
        _RESOLVE_BENEATH | _RESOLVE_NO_XDEV | (_RESOLVE_NO_MAGICLINKS if links else _RESOLVE_NO_SYMLINKS)
    )
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    for _ in range(_ATTEMPTS):
        fd: int = _libc().syscall(_OPENAT2, folder, name, how, _HOW.size)
        if fd >= 0:
            return fd
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _failed()


def rename_new(folder: int, old: str, new: str, library: object | None = None) -> None:
    """Rename within `folder`, and fail when `new` exists. `library` is the C library.

    Raises:
        FileExistsError: `new` exists.
    """
    name, flag = _RENAMES.get(sys.platform, ("", 0))
    rename: Callable[..., int] | None = getattr(library or _libc(), name, None) if name else None
    if rename is not None:
        if rename(folder, os.fsencode(old), folder, os.fsencode(new), ctypes.c_uint(flag)) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise _failed()
    link_new(folder, old, new)


def link_new(folder: int, old: str, new: str) -> None:
    """`rename_new` in two steps, for any system: a hard link is refused where the name exists."""
    os.link(old, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.unlink(old, dir_fd=folder)


def copy_attributes(source: int, target: int, library: object | None = None) -> None:
    """Give the file open as `target` the extended attributes and the access control list of `source` (macOS).

    A resource fork and the quarantine mark are such attributes (copyfile(3)). `library` is the C library.

    Raises:
        OSError: not all could be copied.
    """
    copy: Callable[..., int] | None = getattr(library or _libc(), "fcopyfile", None)
    if copy is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = ctypes.c_uint32(_COPYFILE_ACL | _COPYFILE_XATTR)
    if copy(ctypes.c_int(source), ctypes.c_int(target), None, flags) != 0:
        raise _failed()


def is_virtual(fd: int) -> bool:
    """Whether the object lies on procfs, sysfs or another virtual file system."""
    return sys.platform == "linux" and file_system_type(fd) in _SYNTHETIC


def file_system_type(fd: int) -> int:
    """The type of the file system of an object, as <linux/magic.h> has it. Linux only."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc().fstatfs(ctypes.c_int(fd), found) != 0:
        raise _failed()
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF


def _failed() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
