"""Finds out how the volume of a folder compares names, by asking it and by looking, and which name it stores
for a file that was opened by a variant of it."""

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.files.libc import file_system_type
from mcp_toolserver.text.file_names import NameComparison, folded, lies_in

_PC_CASE_SENSITIVE = 11
"""From <sys/unistd.h> of macOS: 0 where a volume ignores case (pathconf(2))."""

_FS_IOC_GETFLAGS = 0x80086601
"""From <linux/fs.h>, on 64-bit systems."""

_FS_CASEFOLD_FL = 0x40000000
"""From <linux/fs.h>: the names in this folder are compared without case and normal form."""

_EXACT_UNLESS_FLAGGED = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0xF2F52010,  # f2fs
        0x01021994,  # tmpfs
        0x9123683E,  # btrfs
        0x794C7630,  # overlayfs
        0xCA451A4E,  # bcachefs
        0x858458F6,  # ramfs
        0x73717368,  # squashfs
        0x9FA0,  # proc
        0x62656572,  # sysfs
    }
)
"""Types of file systems, from <linux/magic.h>, that compare names exactly except in flagged folders."""

_ONE_ENTRY = _EXACT_UNLESS_FLAGGED | {
    0x4D44,  # vfat, msdos
    0x2011BAB0,  # exfat
    0xFF534D42,  # cifs
    0xFE534D42,  # smb3
}
"""Types that give Linux one directory entry for all names of a file (`d_compare` in fs/fat/namei_vfat.c,
fs/exfat/namei.c, fs/smb/client/dir.c and fs/libfs.c). FUSE, 9p and virtiofs make one for each name."""

_XFS = 0x58465342
"""Its names compare exactly, unless it was made with `version=ci` (mkfs.xfs(8))."""

_ZFS = 0x2FC12FC1
"""OpenZFS can compare normal forms even where case counts (zfsprops(7), `normalization`)."""

_OTHER_CASE = {
    ord(one): other
    for pair in zip(ascii_lowercase, ascii_uppercase, strict=True)
    for one, other in (pair, pair[::-1])
}

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_MAY_FOLD = frozenset(
    {
        *("9p", "affs", "cifs", "exfat", "hfs", "hfsplus", "jfs", "msdos", "ntfs", "ntfs3", "prl_fs", "smb3"),
        *("vboxsf", "vfat", "virtiofs", "vmhgfs", "zfs"),
    }
)
"""Types in /proc/self/mountinfo of which some file systems do not compare names exactly; as those of FUSE."""

_OCTAL = re.compile(r"\\([0-7]{3})")

_ENTRIES = 256
"""Entries of a folder that are looked at."""

_known: dict[tuple[int, int], NameComparison] = {}
"""By device and inode of a folder."""

_MOST_KNOWN = 4_096

_MOST_NAMES = 1_000_000
"""Entries of one folder that are looked through for the stored name."""


def name_comparison(folder: int) -> NameComparison:
    """How names in the open `folder` are compared; `CASELESS` where that cannot be found out.

    On Linux, a folder with the `casefold` attribute counts as such only where it is a root or a mount point.
    """
    status = os.fstat(folder)
    key = status.st_dev, status.st_ino
    if key in _known:
        return _known[key]
    try:
        found = _darwin(folder) if sys.platform == "darwin" else _other(folder)
    except OSError:
        found = None
    if found is None:
        return NameComparison.CASELESS
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[key] = found
    return found


def escapes_mounts(folder: int) -> bool:
    """Whether a file in the open `folder` has names that a mount on its stored name does not cover.

    Only Linux hides and protects files by mounts. A mount on a folder covers all its names.
    """
    if sys.platform != "linux" or file_system_type(folder) in _ONE_ENTRY:
        return False
    return name_comparison(folder) is not NameComparison.EXACT


def comparison_within(folder: int, path: str) -> NameComparison:
    """How names are compared in the open `folder` at `path` and everywhere below it: where volumes differ, as
    on the one that may take the most names for the same.

    Volumes below it are known on Linux only, and not touched, because one may not answer.
    """
    if any(lies_in(path, place) and place != path for place in _mounted()):
        return NameComparison.CASELESS
    return name_comparison(folder)


def _mounted() -> list[str]:
    """Where volumes are mounted that may not compare names exactly."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    # proc_pid_mountinfo(5): the fifth field is the place, with space, tab, line feed and backslash in octal;
    # the type follows after a hyphen.
    found: list[str] = []
    for line in lines:
        before, _, after = line.partition(" - ")
        kind = after.partition(" ")[0]
        if kind in _MAY_FOLD or (kind.startswith("fuse") and kind != "fusectl"):
            found.append(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), before.split(" ")[4]))
    return found


def _darwin(folder: int) -> NameComparison:
    # APFS and HFS+ compare normal forms of names even where case counts (Apple File System Guide).
    counts = os.fpathconf(folder, _PC_CASE_SENSITIVE)
    is_exact = counts == 1 or (counts != 0 and _ignores_case(folder) is False)
    return NameComparison.NORMALIZED if is_exact else NameComparison.CASELESS


def _other(folder: int) -> NameComparison | None:
    kind = 0
    if sys.platform == "linux":
        if _is_flagged(folder):
            return NameComparison.CASELESS
        kind = file_system_type(folder)
        if kind in _EXACT_UNLESS_FLAGGED:
            return NameComparison.EXACT
    ignores_case = _ignores_case(folder)
    if ignores_case is None:
        # Its own way to ignore case is deprecated, and an empty folder is common.
        return NameComparison.EXACT if kind == _XFS else None
    if ignores_case:
        return NameComparison.CASELESS
    return NameComparison.NORMALIZED if kind == _ZFS else NameComparison.EXACT


def _is_flagged(folder: int) -> bool:
    # Only POSIX systems have this module.
    import fcntl

    opened = os.open(".", _LIST, dir_fd=folder)
    try:
        flags = fcntl.ioctl(opened, _FS_IOC_GETFLAGS, bytes(8))
    except OSError:  # most file systems have no such flags
        return False
    finally:
        os.close(opened)
    return bool(int.from_bytes(flags[:4], sys.byteorder) & _FS_CASEFOLD_FL)


def _ignores_case(folder: int) -> bool | None:
    """Whether an entry is found by another spelling of its name; None where no entry has a letter."""
    names = frozenset(entry.name for entry in _entries(folder, _ENTRIES))
    for name in names:
        other = name.translate(_OTHER_CASE)
        if other == name or other in names:
            continue
        with suppress(FileNotFoundError):
            entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
            try:
                found = os.stat(other, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
            return os.path.samestat(entry, found)
    return None


def _entries(folder: int, most: int) -> Iterator[os.DirEntry[str]]:
    opened = os.open(".", _LIST, dir_fd=folder)
    try:
        with os.scandir(opened) as entries:
            yield from islice(entries, most)
    finally:
        os.close(opened)


def stored_name(folder: int, name: str, fd: int, path_of: Callable[[int], str] = descriptor_path) -> str:
    """The name in the open `folder` of the object open as `fd`, which was opened as `name`.

    macOS knows it (`path_of`), unless a file has several names; elsewhere the folder is read.

    Raises:
        OSError: EAGAIN when it has no name there now; EACCES and others when the folder cannot be read.
    """
    status = os.fstat(fd)
    if sys.platform == "darwin" and (status.st_nlink == 1 or stat.S_ISDIR(status.st_mode)):
        with suppress(ImportError, OSError):
            known = os.path.basename(path_of(fd))
            if folded(known) == folded(name):
                return known
    names: list[str] = []
    aliases: list[str] = []
    wanted = folded(name)
    for entry in _entries(folder, _MOST_NAMES):
        if entry.name == name:
            return name
        if folded(entry.name) == wanted:
            names.append(entry.name)
        elif entry.inode() == status.st_ino:
            # A short name, for instance, or one in which the volume leaves something out.
            aliases.append(entry.name)
    return _first_same(folder, (*sorted(names), *sorted(aliases)), status)


def _first_same(folder: int, names: Sequence[str], status: os.stat_result) -> str:
    for name in names:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if os.path.samestat(found, status):
            return name
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
