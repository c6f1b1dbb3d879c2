"""The folder of a repository: what git takes for one, and what in it makes git run programs."""

import os
import re
import stat
from collections.abc import Iterable, Iterator

from mcp_toolserver.runtime.sandbox.protected.names import (
    GIT,
    IN_GIT_FOLDER,
    NESTED_GIT_FOLDERS,
    protected_name,
)
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import opened

LONGEST_PATH = 3_500
"""Bytes of a path from its root. A folder with a longer one is not looked into but reported as a whole: the
kernel takes at most 4,096 bytes at once, which has to do for the quarantine as well."""

LONGEST_POINTER = 4_096
LONGEST_CONFIG = 65_536

SHARED = "../..\n"
"""The file `commondir` of a linked work tree, as git writes it."""

_NO_FOLDER = -1
"""For absolute paths, with which openat(2) ignores the folder."""

_TAME = re.compile(
    r"""\s*(?:
        [#;].*
      | \[core\] | \[(?:remote|branch)\ "[\w./-]+"\]
      | (?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)
        \ =\ (?:true|false|0)
      | url\ =\ (?:https?|ssh|git)://[\w./:@~%+-]+
      | fetch\ =\ \+?refs/[\w./*-]+:refs/[\w./*-]+
      | remote\ =\ \w[\w./-]*
      | merge\ =\ refs/[\w./-]+
    )?\s*""",
    re.VERBOSE | re.ASCII,
)
"""A line of the configuration that `git init` and `git clone` write; git runs nothing because of it."""


_HEAD = re.compile(rb"ref:[ \t\n\r]*refs/|[0-9a-fA-F]{40}")


def is_git_directory(folder: str, root: int | None = None) -> bool:
    """Whether git takes `folder`, absolute or below `root`, for a repository, whatever its name.

    As in `is_git_directory` of git's setup.c. Whether links and the file `commondir` lead to what git looks
    for does not matter: they may do so later.
    """
    if not _is_head(os.path.join(folder, "HEAD"), root):
        return False
    if _exists(root, os.path.join(folder, "commondir")):
        return True
    paths = (os.path.join(folder, name) for name in ("objects", "refs"))
    return all(os.access(path, os.X_OK, dir_fd=root) or _is_link(path, root) for path in paths)


def _is_head(path: str, root: int | None) -> bool:
    try:
        if _is_link(path, root):
            return os.readlink(path, dir_fd=root).startswith("refs/")
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return False
    try:
        # What comes out of a pipe, git reads only once.
        return stat.S_ISFIFO(os.fstat(file).st_mode) or _HEAD.match(os.read(file, 255)) is not None
    except OSError:
        return False
    finally:
        os.close(file)


def _is_link(path: str, root: int | None) -> bool:
    return _exists(root, path) and stat.S_ISLNK(os.stat(path, dir_fd=root, follow_symlinks=False).st_mode)


def hooks_and_config(root: int, folder: str) -> Iterator[str]:
    """What exists of `IN_GIT_FOLDER` in `folder` and in those of its submodules and worktrees.

    A folder among these that lies too deep to be looked into counts as one of them.
    """
    for each in (folder, *_nested(root, folder)):
        if len(os.fsencode(each)) > LONGEST_PATH:
            yield each
        for name in IN_GIT_FOLDER:
            path = os.path.join(each, name)
            if _exists(root, path):
                yield path


def _exists(root: int | None, path: str) -> bool:
    try:
        os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return True


def _nested(root: int, folder: str) -> Iterator[str]:
    """The folders of submodules and worktrees, which lie in folders of any depth."""
    waiting = [os.path.join(folder, name) for name in NESTED_GIT_FOLDERS]
    while waiting:
        path = waiting.pop()
        if len(os.fsencode(path)) > LONGEST_PATH:
            yield path
            continue
        names = _folders_and_head(root, path)
        if "HEAD" in names:
            yield path
            names = [name for name in names if name in NESTED_GIT_FOLDERS]
        waiting += [f"{path}/{name}" for name in names if name != "HEAD"]


def _folders_and_head(root: int, path: str) -> list[str]:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return []
    try:
        with os.scandir(folder) as entries:
            return [
                entry.name for entry in entries if entry.name == "HEAD" or entry.is_dir(follow_symlinks=False)
            ]
    finally:
        os.close(folder)


def git_folder(path: str) -> str | None:
    """The folder of the repository that the absolute `path`, a `.git` of any kind, stands for; None if git
    takes it for none.

    What lies in the folder of another repository stands for that whole folder, and the folder of a worktree
    for that of the repository it belongs to.
    """
    if not os.path.isdir(path):
        text = read_text(_NO_FOLDER, path, LONGEST_POINTER) or ""
        target = text.removeprefix("gitdir:").strip("\n").strip()
        if not text.startswith("gitdir:") or not target or "\0" in target:
            return None
        path = os.path.join(os.path.dirname(path), target)
    folder = os.path.realpath(path)
    parts = folder.split("/")
    names = [protected_name(part) for part in parts[:-1]]
    if GIT in names:
        return "/".join(parts[: names.index(GIT) + 1])
    shared = read_text(_NO_FOLDER, f"{folder}/commondir", LONGEST_POINTER)
    if shared is None or "\0" in shared:
        return folder
    return os.path.realpath(os.path.join(folder, shared.strip("\n").strip()))


def git_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """What exists of `paths`, the repositories they stand for, and the objects of those, without links."""
    places = {place for path in paths for place in (path, git_folder(path) or path)}
    places |= {f"{place}/objects" for place in places}
    return tuple(filter(os.path.exists, set(map(os.path.realpath, places))))


def linked_repository(root: int, place: str, path: str) -> str | None:
    """The `.git` folder below `root`, which lies at `place`, whose linked work tree has the `.git` file
    `path`: each names the other. None if there is none.

    Where commands cannot write in that folder, no command can make such a file. Git takes hooks and
    configuration from that folder.
    """
    pointer = read_text(root, path, LONGEST_POINTER) or ""
    target = pointer.removeprefix("gitdir: ").removesuffix("\n")
    known = target.removeprefix(f"{place.rstrip('/')}/")
    folder, _, name = known.rpartition("/worktrees/")
    if folder.rpartition("/")[2] != GIT or not name or "/" in name:
        return None
    try:
        # As the server opens it: with no link on the way.
        opened_folder = opened(root, known)
    except OSError:
        return None
    try:
        back = read_text(opened_folder, "gitdir", LONGEST_POINTER)
        shared = read_text(opened_folder, "commondir", LONGEST_POINTER)
    finally:
        os.close(opened_folder)
    return folder if back == f"{os.path.join(place, path)}\n" and shared == SHARED else None


def is_harmless(root: int, path: str) -> bool:
    """Whether `path`, one of `IN_GIT_FOLDER`, is just what git puts into every new repository."""
    folder, _, name = path.rpartition("/")
    if name == "hooks":
        return _holds_only_samples(root, path)
    if name == "commondir":
        is_in_place = folder.rpartition("/")[0].endswith(f"{GIT}/worktrees")
        return is_in_place and read_text(root, path, LONGEST_POINTER) == SHARED
    if name == "config":
        text = read_text(root, path, LONGEST_CONFIG)
        return text is not None and all(_TAME.fullmatch(line) for line in text.split("\n"))
    return False


def _holds_only_samples(root: int, path: str) -> bool:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return False
    try:
        return all(name.endswith(".sample") for name in os.listdir(folder))
    finally:
        os.close(folder)


def read_text(root: int, path: str, most: int) -> str | None:
    """The text of a file of at most `most` bytes; None when it is longer, not text, or no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        body = os.read(file, most + 1)
        return body.decode("utf-8") if len(body) <= most else None
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(file)
