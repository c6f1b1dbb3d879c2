"""All that can be seen of a tree without reading its access times, and what changed in it."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


NUMBERS = (
    *("st_ino", "st_size", "st_mode", "st_uid", "st_gid", "st_nlink", "st_mtime_ns"),
    # It moves with every change, also with one that was taken back.
    "st_ctime_ns",
)

Entry = Mapping[str, object]
"""One name in a tree: kind, numbers, the target of a link, the digest of a file, and attributes."""

Snapshot = Mapping[str, Entry]


def snapshot(*trees: Path, without: Iterable[Path] = ()) -> Snapshot:
    """Every entry at and below `trees` by its absolute path, but nothing at or below `without`."""
    left_out = {str(path) for path in without}
    return {path: _entry(path) for tree in trees for path in _below(str(tree), left_out)}


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    """What changed, one line an entry; empty when nothing did."""
    gone = [f"{path}: gone" for path in before if path not in after]
    new = [f"{path}: new {entry['kind']}" for path, entry in after.items() if path not in before]
    changed = [
        f"{path}: {_changes(entry, after[path])}"
        for path, entry in before.items()
        if path in after and after[path] != entry
    ]
    return sorted([*gone, *new, *changed])


def _changes(old: Entry, new: Entry) -> str:
    return ", ".join(f"{name} {old[name]!r} → {new[name]!r}" for name in old if old[name] != new[name])


def _below(path: str, left_out: set[str]) -> Iterator[str]:
    if path in left_out:
        return
    yield path
    if stat.S_ISDIR(os.lstat(path).st_mode):
        for name in sorted(os.listdir(path)):
            yield from _below(f"{path}/{name}", left_out)


def _entry(path: str) -> Entry:
    seen = os.lstat(path)
    kind = KINDS[stat.S_IFMT(seen.st_mode)]
    return {
        "kind": kind,
        **{name: getattr(seen, name) for name in NUMBERS},
        "target": os.readlink(path) if kind == "link" else "",
        "digest": _digest(path) if kind == "file" else "",
        "xattrs": _xattrs(path),
    }


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


def _xattrs(path: str) -> Mapping[str, bytes]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


def descriptors() -> set[str]:
    """The numbers of the files that this process has open. Garbage collection may close some at any time, so
    compare with `<=`."""
    return set(os.listdir("/proc/self/fd"))
