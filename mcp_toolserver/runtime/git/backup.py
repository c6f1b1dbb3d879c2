"""Copies the histories of repositories before the commands of a session may change them.

Git runs in the sandbox of helper programs, which read only: it packs what the files of the repository name
and what the last full backup lacks, and this process writes the pack into the state folder, where no confined
command reads or writes. What git runs or borrows because of files in the repository is off or refused.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import anyio
from anyio.to_thread import run_sync

from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.histories import find_repositories
from mcp_toolserver.runtime.git.runner import Git, RepositoryPaths
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.stores.disk import MIB
from mcp_toolserver.stores.git_backups import (
    PACK,
    BackupFolder,
    BackupLimits,
    NotCopied,
    digest,
    read_files,
    room,
    user_folder,
)
from mcp_toolserver.stores.state_dir import OPEN_FOLDER

SECONDS = 30.0
"""For all repositories together: many clients give up after 60 seconds."""

FRESH_SECONDS = 3600.0
"""A session that starts commands for longer has its repositories copied again."""

MOST = 200
"""Repositories that are copied."""

NAMED = 5
"""Repositories without a backup that an answer names."""

MAX_LISTING = 64 * MIB

_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


_TREE = "HEAD^{tree}"
"""One of the objects of a full backup: without it, others would get all files of the index again."""


class GitBackups:
    """The backups of the repositories in `roots` for the clients of `user`, which is empty without names."""

    def __init__(self, git: Git, state: str, user: str, roots: Sequence[str], limits: BackupLimits) -> None:
        self._git, self._state, self._user, self._roots = git, state, user, roots
        self._limits = limits
        self._search = HiddenPaths((".git", "HEAD"), for_mounts=False)
        self._copied: dict[str, float] = {}
        """When the repositories were copied for an owner, in monotonic seconds."""
        self._notes: dict[str, list[str]] = {}
        """What no answer to an owner has said yet."""
        self._lock = anyio.Lock()

    async def before_command(self, owner: str) -> list[str]:
        """Copy what is new, unless that was done for `owner` within the last hour. Returns sentences on what
        could not be copied; who passes them on empties the list."""
        now = time.monotonic()
        if now - self._copied.get(owner, -FRESH_SECONDS) >= FRESH_SECONDS:
            async with self._lock:
                self._copied = {one: at for one, at in self._copied.items() if now - at < FRESH_SECONDS}
                self._notes = {one: note for one, note in self._notes.items() if one in self._copied}
                self._notes[owner] = _note(await self._copy_all())
                self._copied[owner] = time.monotonic()
        return self._notes[owner]

    async def _copy_all(self) -> dict[str, str]:
        """Copy every repository; returns why not, by git folder or root."""
        try:
            folder = user_folder(self._state, self._user)
            places = await run_sync(self._places, folder)
        except (Unprotectable, OSError) as error:
            return dict.fromkeys(self._roots, str(error))
        late = f"copying takes over {SECONDS:.0f} s, or there are over {MOST} repositories"
        failed = {place.git_dir: late for place in places}
        with anyio.move_on_after(SECONDS):
            for place in places[:MOST]:
                try:
                    await self._copy(folder, place)
                    del failed[place.git_dir]
                except (NotCopied, ToolError, OSError, ValueError) as error:
                    failed[place.git_dir] = str(error).removesuffix(".")
        for place in places[:MOST]:
            # The answer says it even if `doctor` cannot.
            with suppress(OSError):
                place.record(failed.get(place.git_dir, ""))
        return failed

    def _places(self, folder: str) -> list[BackupFolder]:
        """All repositories; however many a command makes, those that have backups come first."""
        _, found = find_repositories(self._search, self._roots)
        places = [BackupFolder(folder, one) for git_dir in found for one in _with_submodules(git_dir)]
        return sorted(places, key=lambda at: (not at.backups, at.git_dir.count("/"), at.git_dir))

    async def _copy(self, folder: str, place: BackupFolder) -> None:
        """Make a backup if anything has changed. Raises: NotCopied, ToolError, OSError, ValueError."""
        files, before = await run_sync(read_files, place.git_dir), time.time() - self._limits.seconds
        place.prune(before)
        if place.backups and place.backups[-1].state == digest(files):
            return
        named = {name.decode() for content in files.values() for name in _ID.findall(content)}
        full, is_old = place.full, place.full is not None and place.full.time < before
        known = set(full.tips if full else ())
        existing = await self._existing(place.git_dir, {*named, *known, _TREE})
        tips = sorted(existing - (known - named))
        # Where a new full one has no room, the old one goes on.
        for base in dict.fromkeys((None if is_old else full, full)):
            lines = [*tips, *(f"^{tip}" for tip in (base.tips if base else ()) if tip in existing)]
            left = room(folder, self._limits)
            try:
                with place.writing(files, tips, base.id if base else "") as archive:
                    with archive.open(PACK, "w", force_zip64=True) as pack:
                        await self._ask(place.git_dir, ("pack-objects",), lines, pack.write, left)
                    # A link may have come and gone while git read.
                    await run_sync(read_files, place.git_dir)
                return
            except NotCopied:
                if base is full:
                    raise

    async def _existing(self, git_dir: str, ids: Collection[str]) -> set[str]:
        """The objects of the repository that `ids` name."""
        listing = bytearray()
        words = ("cat-file", "--batch-check=%(objectname)")
        await self._ask(git_dir, words, ids, listing.extend, MAX_LISTING)
        return {line for line in listing.decode().splitlines() if not line.endswith(" missing")}

    async def _ask(
        self,
        git_dir: str,
        words: Sequence[str],
        lines: Collection[str],
        take: Callable[[bytes], object],
        most: int,
    ) -> None:
        """Run a git command with `lines` as its input, whose output `take` gets, at most `most` bytes.

        Raises:
            NotCopied: it fails, or prints more; ToolError: as `Git`.
        """
        location = RepositoryPaths(git_dir=git_dir, common_dir=git_dir, top=git_dir, config=b"")
        query = GitInvocation(words[0], tuple(words[1:]), stdin="".join(f"{one}\n" for one in lines).encode())
        cwd = os.open(git_dir, OPEN_FOLDER)
        try:
            answer = await self._git.ask(location, query, cwd=cwd, timeout=SECONDS, limit=most, take=take)
        finally:
            os.close(cwd)
        if answer.truncated:
            raise NotCopied(
                f"it needs more than the {max(most, 0) // MIB} MiB that history-size or the disk leaves"
            )
        if answer.status != 0:
            raise NotCopied("git cannot read all of it (`git fsck` names what is missing)")


def _note(failed: Mapping[str, str]) -> list[str]:
    """Say which repositories could not be copied."""
    named = "; ".join(f"{showable(place)}, because {why}" for place, why in list(failed.items())[:NAMED])
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    said = f"No backup of the git history before this command: {named}{more}. Tell the user."
    return [said] if failed else []


def _with_submodules(git_dir: str) -> Iterator[str]:
    """The git folder of a repository and those of its submodules."""
    yield git_dir
    for folder, folders, files in os.walk(f"{git_dir}/modules"):
        if "HEAD" in files:
            folders[:] = {"modules"}.intersection(folders)
            yield folder
