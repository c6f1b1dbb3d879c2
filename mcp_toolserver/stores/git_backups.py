"""Backups of git histories: one zip file per backup, in a folder per user and repository.

A backup has the files that say what a repository refers to, and a pack of objects. A full one has every
object that these files name; the others have what is new since the full one that they name. They stay for
`undo-days`, the newest of each kind longer, and none makes room for another.
"""

import hashlib
import json
import os
import re
import secrets
import stat
import time
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from mcp_toolserver.stores.disk import HISTORY_FOLDER, MIB, free_bytes, size_of, too_little_stays
from mcp_toolserver.stores.state_dir import CREATE, READ, private_folder

PACK, META = "objects.pack", "backup.json"

FAILED = "not-copied.json"
"""Why a repository has no backup of its present state, in its folder."""

UNFINISHED_SECONDS = 3600.0
"""After so long, an unfinished backup is that of a killed server."""

DAMAGED = (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged backup raises."""

MAX_FILES = 1_000_000
MAX_BYTES = 64 * MIB
"""Of the files that a backup has besides objects."""

_READ = re.compile(
    r"((ORIG_)?HEAD|index|sharedindex\.\w+|packed-refs|shallow|(refs|logs)/.+|config)"
    r"|worktrees/[^/]+/(HEAD|index|(refs|logs)/.+)"
)
_SEARCHED = re.compile(r"(objects|(worktrees/[^/]+/)?(refs|logs))(/.*)?|worktrees(/[^/]+)?")
_BORROWING = ("commondir", "objects/info/alternates", "info/grafts", "reftable")
"""What makes git read objects of another repository, or other parents or references than the files say."""


@dataclass(frozen=True, kw_only=True)
class BackupLimits:
    """Limits for the backups of one user."""

    total: int
    """Bytes."""
    seconds: float
    """How long an older backup stays."""
    reserve: int
    """Bytes that stay free on the disk."""


class NotCopied(Exception):
    """Why a history cannot be copied, in words that go on from "because"."""


@dataclass(frozen=True, kw_only=True)
class Backup:
    path: str
    """Of its zip file."""
    repository: str
    """Absolute path of the git folder."""
    time: float
    """Seconds since 1970."""
    base: str
    """Id of the full backup that it goes with; empty if it is one."""
    tips: tuple[str, ...]
    """Ids of the objects that its files name and that existed."""
    state: str
    """Hash of its files."""

    @property
    def id(self) -> str:
        return os.path.basename(self.path).removesuffix(".zip")


def read_files(git_dir: str) -> dict[str, bytes]:
    """Return the files of a repository that a backup has, by their paths in the git folder.

    Raises:
        NotCopied: it has a link or a special file where git would follow it, or is too large.
        OSError: it cannot be read.
    """
    found: dict[str, bytes] = {}
    waiting, count, size = [""], 0, 0
    for name in filter(lambda name: os.path.lexists(f"{git_dir}/{name}"), _BORROWING):
        raise NotCopied(f"its file {name} lets git read other data")
    while waiting:
        folder = waiting.pop()
        with os.scandir(f"{git_dir}/{folder}") as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                is_searched, is_read = _SEARCHED.fullmatch(name), _READ.fullmatch(name)
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting += [name] * bool(is_searched)
                elif (is_searched or is_read) and not entry.is_file(follow_symlinks=False):
                    raise NotCopied(f"its {name} is a link or a special file")
                elif is_read:
                    found[name] = _read(entry.path, name)
                    size += len(found[name])
                if count > MAX_FILES or size > MAX_BYTES:
                    raise NotCopied(
                        f"it has over {MAX_FILES:,} files, or {MAX_BYTES // MIB} MiB of references"
                    )
    return found


def _read(path: str, name: str) -> bytes:
    with os.fdopen(os.open(path, READ), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotCopied(f"its {name} is a link or a special file")
        return file.read(MAX_BYTES + 1)


class BackupFolder:
    """The backups of the repository with this git folder, in `user_folder`, oldest first."""

    def __init__(self, user_folder: str, git_dir: str) -> None:
        hashed = hashlib.sha256(os.fsencode(git_dir)).hexdigest()[:16]
        self.path, self.git_dir = f"{user_folder}/{hashed}", git_dir
        self.backups = load(self.path)

    @property
    def full(self) -> Backup | None:
        """The newest full backup."""
        return next((backup for backup in reversed(self.backups) if not backup.base), None)

    def record(self, why: str) -> None:
        """Store for `failures` why the present state has no backup; empty if it has one."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        if why:
            Path(self.path, FAILED).write_text(json.dumps([self.git_dir, why]), encoding="utf-8")
        else:
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}/{FAILED}")
            # Removed at a start by its age.
            os.utime(self.path)

    def prune(self, before: float) -> None:
        """Remove backups from `before` then, except the newest, the newest full one and what these need."""
        kept = [backup for backup in self.backups if backup.time >= before]
        kept += (*self.backups[-1:], *filter(None, [self.full]))
        needed = {backup.id for backup in kept} | {backup.base for backup in kept}
        for backup in self.backups:
            if backup.id not in needed:
                os.unlink(backup.path)
        self.backups = [backup for backup in self.backups if backup.id in needed]
        for unfinished in Path(self.path).glob("*.tmp"):
            if unfinished.stat().st_mtime < time.time() - UNFINISHED_SECONDS:
                unfinished.unlink()

    @contextmanager
    def writing(
        self, files: Mapping[str, bytes], tips: Sequence[str], base: str
    ) -> Generator[zipfile.ZipFile]:
        """A new backup, to which the body adds the pack; without an error, it exists afterwards."""
        moment = time.time()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(moment))}-{secrets.token_hex(2)}"
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        path = f"{self.path}/{name}.zip"
        made = Backup(
            path=path, repository=self.git_dir, time=moment, base=base, tips=tuple(tips), state=digest(files)
        )
        try:
            with os.fdopen(os.open(f"{path}.tmp", CREATE, 0o600), "w+b") as file:
                with zipfile.ZipFile(file, "w") as archive:
                    meta = json.dumps({**asdict(made), "path": ""}).encode()
                    for one, content in {META: meta, **files}.items():
                        archive.writestr(one, content, zipfile.ZIP_DEFLATED)
                    yield archive
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{path}.tmp", path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(f"{path}.tmp")
        self.backups.append(made)


def digest(files: Mapping[str, bytes]) -> str:
    """A hash of files with their names."""
    parts = (f"{os.fsencode(name)!r} {hashlib.sha256(files[name]).hexdigest()}\n" for name in sorted(files))
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def load(folder: str) -> list[Backup]:
    """The backups in a folder, oldest first; what is damaged is none."""
    found: list[Backup] = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        with suppress(*DAMAGED):
            if name.endswith(".zip"):
                with zipfile.ZipFile(f"{folder}/{name}") as archive:
                    meta = json.loads(archive.read(META))
                meta |= {"path": f"{folder}/{name}", "tips": tuple(meta["tips"])}
                found.append(Backup(**meta))
    return sorted(found, key=lambda backup: backup.time)


def user_folder(state: str, user: str) -> str:
    """The folder for the backups of a user; empty is all clients together. Raises: OSError."""
    # No name of a token begins like this.
    return private_folder(private_folder(state, HISTORY_FOLDER), user or "_all")


def room(folder: str, limits: BackupLimits) -> int:
    """Bytes that backups in a user's folder may still take. Raises: NotCopied: the disk is full."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        free = free_bytes(descriptor)
    finally:
        os.close(descriptor)
    if free is not None and free <= limits.reserve:
        raise NotCopied(too_little_stays(limits.reserve))
    left = limits.total - size_of(folder)
    return left if free is None else min(left, free - limits.reserve)


def users(state: str) -> list[str]:
    """The folders of all users."""
    top = f"{state}/{HISTORY_FOLDER}"
    return [f"{top}/{user}" for user in sorted(os.listdir(top))] if os.path.isdir(top) else []


def folders(state: str) -> Iterator[str]:
    """The folders of all users' repositories."""
    for user in users(state):
        yield from (f"{user}/{name}" for name in sorted(os.listdir(user)))


def failures(state: str) -> dict[str, str]:
    """The git folders of which there is no backup, each with the reason."""
    found: dict[str, str] = {}
    for folder in folders(state):
        with suppress(OSError, ValueError):
            git_dir, why = json.loads(Path(folder, FAILED).read_text(encoding="utf-8"))
            found[git_dir] = why
    return found
