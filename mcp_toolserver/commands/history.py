"""`history`: lists the backups of git histories, or restores one.

The repository may be hostile: git works on a copy in the state folder, and this process follows no link.
"""

import io
import os
import re
import secrets
import shutil
import subprocess
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.stores.git_backups import (
    DAMAGED,
    META,
    PACK,
    Backup,
    NotCopied,
    failures,
    folders,
    load,
    read_files,
)
from mcp_toolserver.stores.state_dir import CREATE, OPEN_FOLDER
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.lines.escape_invisible import visible

_PACKED = re.compile(r"^([0-9a-f]{40,64}) (refs/\S+)$", re.MULTILINE)
_UNRESTORED = ("config", "worktrees")
"""The configuration is restored only where there is none; objects of linked worktrees are."""


def list_backups(state: str, roots: Sequence[str]) -> int:
    """Print the backups of the repositories in `roots`, or of all if there are none."""
    backups = [backup for folder in folders(state) for backup in load(folder)]
    failed, tops = failures(state), [os.path.realpath(root) for root in roots]
    every = sorted({backup.repository for backup in backups}.union(failed))
    chosen = [one for one in every if not tops or any(lies_in(top, one) for top in tops)]
    if not chosen:
        print("There are no backups.")
    for repository in chosen:
        print(visible(repository))
        for backup in (backup for backup in backups if backup.repository == repository):
            said = "damaged"
            with suppress(*DAMAGED):
                head, count = _summary(_files(backup))
                said = f"{head}, {count} references, {os.path.getsize(backup.path) >> 10:,} KiB"
            print(visible(f"  {backup.id}  {said}"))
        if repository in failed:
            print(visible(f"  its present state has no backup, because {failed[repository]}"))
    return 0


def restore(state: str, wanted: str, git: str | None) -> int:
    """Restore references, HEAD, index and reflogs from the backup `wanted`, and keep what is there.

    Raises:
        SettingsError: there is no such backup, it is damaged, or the repository cannot be written.
    """
    every = {backup.id: backup for folder in folders(state) for backup in load(folder)}
    if git is None or wanted not in every:
        raise SettingsError(
            "git was not found" if git is None else f"no backup has the id {wanted!r}; see history list"
        )
    backup, stamp = every[wanted], time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    with TemporaryDirectory(dir=state) as scratch:
        try:
            packs = _unpacked(backup, [every[backup.base]] if backup.base else [], git, scratch)
            files = _files(backup)
            kept = _replace(backup.repository, files, packs, stamp)
        except DAMAGED as error:
            raise SettingsError(f"backup {wanted} cannot be restored: {error}") from None
        except NotCopied as error:
            raise SettingsError(
                f"{backup.repository} is not written, because {error}; move it away and restore again"
            ) from None
    head, count = _summary(files)
    print(visible(f"Restored {backup.repository} to backup {wanted}: {head}, {count} references."))
    if kept:
        print(visible(f"Replaced files: {backup.repository}/{kept}"))
        print(f"Replaced references: refs/{kept}/ (git branch NAME refs/{kept}/heads/NAME)")
    print("The files of the work tree are as they were; git status compares them.")
    return 0


def _files(backup: Backup) -> dict[str, bytes]:
    with zipfile.ZipFile(backup.path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name not in (PACK, META)}


def _references(files: Mapping[str, bytes]) -> dict[str, str]:
    """The ids of references, by name; symbolic ones are left out. That of a detached HEAD is `refs/HEAD`."""
    texts = {name: content.decode(errors="replace").strip() for name, content in files.items()}
    found = {name: one for one, name in _PACKED.findall(texts.get("packed-refs", ""))}
    found |= {name: one for name, one in texts.items() if name.startswith("refs/")}
    found["refs/HEAD"] = texts.get("HEAD", "")
    return {name: one for name, one in found.items() if re.fullmatch("[0-9a-f]{40,64}", one)}


def _summary(files: Mapping[str, bytes]) -> tuple[str, int]:
    head = files.get("HEAD", b"").decode(errors="replace").strip()
    return head.removeprefix("ref: refs/heads/"), len(_references(files).keys() - {"refs/HEAD"})


def _unpacked(backup: Backup, bases: Sequence[Backup], git: str, scratch: str) -> list[str]:
    """Index the packs of a backup in a new repository, and verify that it is whole; returns the files.

    Raises:
        one of DAMAGED: it is damaged.
    """
    environment = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.defpath}

    def run(*words: str, reads: str = os.devnull) -> None:
        argv = [git, f"--git-dir={scratch}/git", *words]
        with Path(reads).open("rb") as file:
            done = subprocess.run(argv, stdin=file, env=environment, capture_output=True, check=False)
        if done.returncode:
            raise ValueError(f"git {words[0]}: {done.stderr.decode(errors='replace').strip()[:500]}")

    kind = "sha256" if any(len(tip) == 64 for tip in backup.tips) else "sha1"
    run("init", "--quiet", "--template=", f"--object-format={kind}", "--bare")
    if shallow := _files(backup).get("shallow"):
        Path(scratch, "git/shallow").write_bytes(shallow)
    for one in (*bases, backup):
        with zipfile.ZipFile(one.path) as archive:
            run("index-pack", "--stdin", reads=archive.extract(PACK, scratch))
    Path(scratch, "tips").write_text("".join(f"{tip}\n" for tip in backup.tips), encoding="utf-8")
    run("rev-list", "--objects", "--stdin", "--quiet", reads=f"{scratch}/tips")
    folder = f"{scratch}/git/objects/pack"
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder), key=lambda name: name.endswith(".idx"))]


def _replace(git_dir: str, files: Mapping[str, bytes], packs: Sequence[str], stamp: str) -> str:
    """Write the files of a backup and the packs into a git folder; returns the name of the folder in it that
    has what was there, or nothing.

    Raises:
        NotCopied: it has links or borrows objects; OSError: it cannot be written.
    """
    os.makedirs(git_dir, exist_ok=True)
    old = read_files(git_dir)
    top = os.open(git_dir, OPEN_FOLDER)
    try:
        if descriptor_path(top) != git_dir:
            raise NotCopied("a link leads to it")
        for pack in packs:
            with Path(pack).open("rb") as file:
                _write(top, f"objects/pack/{os.path.basename(pack)}", file)
        kept = f"before-restore-{stamp}"
        parts = {name.partition("/")[0] for name in old}.difference(_UNRESTORED)
        if parts:
            os.mkdir(kept, 0o700, dir_fd=top)
        for part in parts:
            os.rename(part, f"{kept}/{part}", src_dir_fd=top, dst_dir_fd=top)
        saved = {
            f"refs/{kept}/{name.removeprefix('refs/')}": f"{one}\n".encode()
            for name, one in _references(old).items()
        }
        new = {name: content for name, content in files.items() if name.partition("/")[0] not in _UNRESTORED}
        if "config" in files and "config" not in old:
            new["config"] = files["config"]
        # Git takes the folder for a repository once HEAD is there.
        for name in sorted({**saved, **new}, key=lambda name: name == "HEAD"):
            _write(top, name, io.BytesIO({**saved, **new}[name]))
        os.close(_folder(top, "refs/heads"))
        return kept if parts else ""
    finally:
        os.close(top)


def _folder(top: int, path: str) -> int:
    """Open a folder below the open folder `top`, made if needed, without following links."""
    folder = os.dup(top)
    for part in filter(None, path.split("/")):
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
        try:
            inner = os.open(part, OPEN_FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _write(top: int, name: str, content: IO[bytes]) -> None:
    place, _, last = name.rpartition("/")
    folder, temporary = _folder(top, place), f".{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(temporary, CREATE, 0o644, dir_fd=folder), "wb") as file:
            shutil.copyfileobj(content, file)
        os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
