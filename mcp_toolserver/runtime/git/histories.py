"""Finds the repositories that commands must not see, because a deny rule on reading hides a file in them.

Git objects hold every version of every file. Paths come from all commits, those that nothing refers to
included, each compared with its parents, and from indexes. A blob without a path, and whatever cannot be
examined, hides the repository. A result holds until `objects` or an index changes; then only new objects are
examined.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from mcp_toolserver.errors import SandboxUnavailable, TimedOut, ToolError
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.runner import Git, RepositoryPaths
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.protected.git_dir import git_folder
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.text.file_names import NameComparison, lies_in, volume_path

log = logging.getLogger(__name__)

SECONDS = 20.0
"""For one repository."""

MAX_OUTPUT = 64 << 20
"""Bytes of output of one git command."""

_OBJECTS = ("--batch-all-objects", "--batch-check=%(objecttype) %(objectname)", "--unordered", "--buffer")
_CHANGES = ("-r", "-c", "-z", "--raw", "--root", "--no-renames", "--no-abbrev", "--no-commit-id")

_OBJECT = re.compile(rb"^(blob|commit) (\w+)$", re.MULTILINE)
_PATH = re.compile(rb" ([0-9a-f]{40,64}) (?:[A-Z]+\0|\d\t)([^\0]+)\0")
"""A blob and its path, as `diff-tree --raw -z` and `ls-files --stage -z` print them."""

_STORED = re.compile(
    r"[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-\w+\.(?:pack|idx|rev|bitmap|keep|mtimes|promisor)"
    r"|pack/multi-pack-index[\w.-]*|info/(?:packs|commit-graph|commit-graphs/[\w.-]+)|[\w-]+\.lock"
)
"""What git keeps in `objects`, except for alternates and unfinished files."""


class GitHistories:
    """The repositories in and above `roots`. `rule_on` returns the rule that hides a path, given in all its
    spellings, or nothing. Without `git`, every repository is hidden.
    """

    def __init__(
        self, git: Git | None, roots: Sequence[str], rule_on: Callable[[tuple[str, ...]], str]
    ) -> None:
        self._git = git
        self._roots = roots
        self._rule_on = rule_on
        self._search = HiddenPaths((".git", "HEAD"), for_mounts=False)
        self._known: dict[str, tuple[object, str]] = {}
        """By repository, its state and why it is hidden."""
        self._seen: dict[object, set[bytes]] = {}
        """Commits and blobs of whose paths none is hidden."""
        self._lock = anyio.Lock()
        self.hidden: dict[str, str] = {}
        """By path of a `.git`, why commands must not see it; as of the last `look`."""

    async def look(self) -> Iterable[str]:
        """Bring `hidden` up to date, and return the paths.

        Raises:
            SandboxUnavailable: the roots cannot be searched.
        """
        async with self._lock:
            try:
                hidden, repositories = await run_sync(find_repositories, self._search, self._roots)
            except (Unprotectable, OSError) as error:
                raise SandboxUnavailable(str(error)) from None
            whys = {git_dir: await self._why(git_dir, tops) for git_dir, tops in repositories.items()}
            hidden |= {git_dir: why for git_dir, why in whys.items() if why}
            for path in hidden.keys() - self.hidden.keys():
                log.warning("%s is empty for commands: %s", showable(path), hidden[path])
            self.hidden.clear()
            self.hidden.update(hidden)
            return tuple(hidden)

    async def _why(self, git_dir: str, tops: frozenset[str]) -> str:
        """Why commands must not see a repository; empty if they may."""
        try:
            state = tops, await run_sync(_state, git_dir)
            if git_dir not in self._known or self._known[git_dir][0] != state:
                try:
                    with anyio.fail_after(SECONDS):
                        why = await self._examined(git_dir, tops)
                except (TimeoutError, TimedOut):
                    why = f"examining its history takes more than {SECONDS:.0f} s"
                self._known[git_dir] = state, why
            return self._known[git_dir][1]
        except (ToolError, OSError, ValueError) as error:
            return f"its history cannot be examined ({error})"

    async def _examined(self, git_dir: str, tops: frozenset[str]) -> str:
        """Examine what is new in a repository; returns why commands must not see it.

        Raises:
            ToolError, OSError, ValueError: it cannot be examined.
        """
        if self._git is None:
            raise ValueError("git was not found")
        git, found = self._git, RepositoryPaths(git_dir=git_dir, common_dir=git_dir, top=git_dir, config=b"")
        # Git lists only what lies in the folder in which it is started, so that is the work tree here.
        cwd = os.open(git_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = await git.configured(found, cwd=cwd, timeout=SECONDS)

            async def ask(*words: str, stdin: bytes = b"", place: str = git_dir) -> bytes:
                query = GitInvocation(words[0], words[1:], stdin=stdin)
                at = replace(found, git_dir=place)
                answer = await git.ask(at, query, cwd=cwd, timeout=SECONDS, limit=MAX_OUTPUT)
                if answer.status != 0 or answer.truncated:
                    raise ValueError(f"git {words[0]} failed, or printed more than {MAX_OUTPUT >> 20} MiB")
                return answer.stdout

            seen = self._seen.setdefault((git_dir, tops), set())
            objects = await run_sync(_OBJECT.findall, await ask("cat-file", *_OBJECTS))
            new = {name: kind == b"commit" for kind, name in objects if name not in seen}
            commits = b"".join(b"%b\n" % name for name, is_commit in new.items() if is_commit)
            outputs = [await ask("ls-files", "--stage", "-z", place=place) for place in _with_index(git_dir)]
            outputs += [await ask("diff-tree", *_CHANGES, stdin=commits)] if commits else []
        finally:
            os.close(cwd)
        why = await run_sync(self._hiding, tops, outputs, {name for name in new if not new[name]})
        seen.update(() if why else new)
        return why

    def _hiding(self, tops: Iterable[str], outputs: Iterable[bytes], blobs: set[bytes]) -> str:
        """The rule that hides a path in `outputs`, in words, or how many of `blobs` are without a path."""
        names: set[str] = set()
        for blob, path in (found for output in outputs for found in _PATH.findall(output)):
            blobs.discard(blob)
            name = os.fsdecode(path)
            # A rule on a folder hides what is in it.
            while name and name not in names:
                names.add(name)
                name = name.rpartition("/")[0]
        for path in (f"{top.rstrip('/')}/{name}" for top in tops for name in sorted(names, reverse=True)):
            root = next(root for root in self._roots if lies_in(root, path))
            spellings = (path[len(root) :].lstrip("/"), path)
            # Whatever volume it comes from, or goes to.
            if rule := self._rule_on(tuple(volume_path(one, NameComparison.CASELESS) for one in spellings)):
                return f"the rule {rule} hides {showable(path)}, which its history or index has"
        if not blobs:
            return ""
        return f"{len(blobs)} of its blobs are in no commit and no index (`git gc --prune=now` removes them)"


def find_repositories(
    search: HiddenPaths, roots: Sequence[str]
) -> tuple[dict[str, str], Mapping[str, frozenset[str]]]:
    """What of the repositories in and above `roots` git would find elsewhere, with the reason, and the others
    with their work trees. `search` finds `.git` and `HEAD`.

    A repository without a work tree could have any of those.

    Raises:
        Unprotectable, OSError: the roots cannot be searched.
    """
    above = (str(folder / ".git") for root in roots for folder in Path(root).parents)
    hidden = dict.fromkeys(filter(os.path.lexists, above), "its work tree begins above a root")
    tops: dict[str, set[str]] = {}
    for path, is_folder in search.find(roots, roots).items():
        folder, name = os.path.split(path)
        is_named = name.lower() == ".git"
        # Next to a `HEAD`.
        is_git_folder = any(os.path.lexists(f"{folder}/{part}") for part in ("objects", "commondir"))
        place = path if is_named else folder if is_git_folder else ""
        git_dir = place and git_folder(place)
        if git_dir and any(lies_in(root, git_dir) for root in roots):
            tops.setdefault(git_dir, set()).update((folder,) if is_named else ())
        elif git_dir:
            hidden[place] = f"its data lies outside the roots, in {showable(git_dir)}"
        elif is_folder:
            hidden[path] = "it cannot be searched for repositories"
    every = frozenset(roots).union(*tops.values())
    return hidden, {git_dir: frozenset(own) or every for git_dir, own in tops.items()}


def _with_index(git_dir: str) -> list[str]:
    """The folders of a repository that may have an index: its own, and one for each linked work tree."""
    linked = f"{git_dir}/worktrees"
    return [git_dir, *(f"{linked}/{name}" for name in (os.listdir(linked) if os.path.isdir(linked) else ()))]


def _state(git_dir: str) -> object:
    """What the paths in a repository depend on: the names of its objects, and its indexes.

    Raises:
        OSError, ValueError: git may find objects, or parents of commits, elsewhere too.
    """
    top, names = f"{git_dir}/objects", set[str]()

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(top, onerror=fail):
        names.update(f"{folder}/{name}"[len(top) + 1 :] for name in files)
        # Git follows links.
        names.update(f"{name}/" for name in folders if os.path.islink(f"{folder}/{name}"))
    places = _with_index(git_dir)
    names.update(("../objects",) if os.path.islink(top) else ())
    odd = [f"{top}/{name}" for name in names if not _STORED.fullmatch(name)]
    odd += [f"{top}/{name}" for name in names if name.endswith(".pack") and f"{name[:-4]}idx" not in names]
    odd += filter(os.path.lexists, (f"{git_dir}/info/grafts", *(f"{place}/modules" for place in places)))
    if odd:
        raise ValueError(f"nothing looks into {showable(min(odd))}")
    indexes = [os.stat(file) for place in places if os.path.exists(file := f"{place}/index")]
    return names, [(index.st_ino, index.st_size, index.st_ctime_ns) for index in indexes]
