"""The folder of a repository: what in it makes git run programs, and where a `.git` file points."""

import os
import re
import stat
from collections.abc import Iterator

from mcp_toolserver.runtime.sandbox.protected.folder_scan import LONGEST_PATH
from mcp_toolserver.runtime.sandbox.protected.names import (
    GIT,
    IN_GIT_FOLDER,
    NESTED_GIT_FOLDERS,
    protected_name,
)
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import opened

LONGEST_POINTER = 4_096
LONGEST_CONFIG = 65_536

SHARED = "../..\n"
"""The file `commondir` of a linked work tree, as git writes it."""

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


def hooks_and_config(root: int, folder: str) -> Iterator[str]:
    """What exists of `IN_GIT_FOLDER` in `folder` and in those of its submodules and worktrees.

    A folder among these that lies too deep to be looked into counts as one of them.
    """
    for each in (folder, *_nested(root, folder)):
        if len(os.fsencode(each)) > LONGEST_PATH:
            yield each
        for name in IN_GIT_FOLDER:
            path = f"{each}/{name}"
            if _exists(root, path):
                yield path


def _exists(root: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return True


def _nested(root: int, folder: str) -> Iterator[str]:
    """The folders of submodules and worktrees, which lie in folders of any depth."""
    waiting = [f"{folder}/{name}" for name in NESTED_GIT_FOLDERS]
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


def pointed_to(root: int, place: str, path: str) -> str | None:
    """Where the `.git` file `path` below `root`, which lies at `place`, points: absolute, or None.

    What lies in the folder of another repository stands for that whole folder, and the folder of a worktree
    for that of the repository it belongs to, whose hooks and configuration git takes.
    """
    text = read_text(root, path, LONGEST_POINTER)
    if text is None or not text.startswith("gitdir:"):
        return None
    target = text.removeprefix("gitdir:").strip("\n").strip()
    if not target or "\0" in target:
        return None
    resolved = os.path.realpath(os.path.join(place, os.path.dirname(path), target))
    parts = resolved.split("/")
    names = [protected_name(part) for part in parts]
    return "/".join(parts[: names.index(GIT) + 1]) if GIT in names else _common_folder(resolved)


def _common_folder(folder: str) -> str:
    """The folder that the git folder `folder` shares with others, by its file `commondir`; else itself."""
    try:
        opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return folder
    try:
        shared = read_text(opened, "commondir", LONGEST_POINTER)
    finally:
        os.close(opened)
    if shared is None or "\0" in shared:
        return folder
    return os.path.realpath(os.path.join(folder, shared.strip("\n").strip()))


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
