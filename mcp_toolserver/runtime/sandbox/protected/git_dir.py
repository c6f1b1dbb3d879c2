"""The folder of a repository: what git takes for one, and what in it makes git run programs."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from mcp_toolserver.runtime.sandbox.protected.names import (
    GIT,
    IN_GIT_FOLDER,
    NESTED_GIT_FOLDERS,
    protected_name,
)
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import NO_FOLDER, EntryKind, entry_kind, opened
from mcp_toolserver.text.file_names import lies_in

LONGEST_PATH = 3_500
"""Bytes of a path from its root. A folder with a longer one is not looked into but reported as a whole: the
kernel takes at most 4,096 bytes at once, which has to do for the quarantine as well."""

LONGEST_POINTER = 4_096
LONGEST_CONFIG = 65_536

CONFIGS = ("config", "config.worktree")

SHARED = "../..\n"
"""The file `commondir` of a linked work tree, as git writes it."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_TAME = re.compile(
    r"""(?:
        [#;].*
      | \[(?:core|user|init|pull|push|merge|rebase|commit|tag|gc|fetch|extensions)\]
      | \[(?:remote|branch)\ "[^"\\]+"\]
      | (?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|rebase
          |prune|autosquash|autostash|autosetupremote|followtags|gpgsign|mirror|worktreeconfig|promisor|ff
          |relativeworktrees)
        \ =\ (?:true|false|\d+|only)
      | (?:name|email)\ =\ [^\\"\#;\0]*
      | (?:autocrlf|eol|safecrlf|objectformat|defaultbranch|default|conflictstyle|partialclone|pushremote
          |remote|tagopt|auto)
        \ =\ [\w.-]+
      | partialclonefilter\ =\ [\w:=]+
      | fetch\ =\ \+?refs/[\w./*-]+:refs/[\w./*-]+
      | merge\ =\ refs/[\w./-]+
      | (?:push)?url\ =\ (?:(?:https?|ssh|git)://\w[\w./:@~%+-]* | \w[\w.-]*@\w[\w.-]*:[\w./~+-]+
        | (?P<path>(?:file://)?[./][^\\"\#;\0]*))
    )?""",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
"""A line of a configuration because of which git runs nothing and reads nothing of elsewhere: what `git init`
and `git clone` write, and what is often set in a new repository. A path is good only within the roots."""

PACKED_REFS = "packed-refs"
"""Holds most branches and tags."""

_HARM: Mapping[str, re.Pattern[bytes]] = {
    "rebase-merge/git-rebase-todo": re.compile(rb"^[ \t]*(?:x|exec)\b", re.MULTILINE),
    # Part of the name of a program: a path leads to one in the work tree.
    "rebase-merge/strategy": re.compile(rb"/"),
    "sequencer/opts": re.compile(rb"^[ \t]*strategy[ \t]*=.*/", re.MULTILINE | re.IGNORECASE),
    # Other options let a patch write outside of the work tree.
    "rebase-apply/apply-opt": re.compile(rb"--(?!whitespace=|ignore-|reject|3way)"),
    # Scripts of older versions evaluate it.
    "BISECT_NAMES": re.compile(rb"\A(?!(?:\s*+'[^']*+')*+\s*+\Z)"),
    PACKED_REFS: re.compile(rb"^\S+ refs/replace/.*\n?(?:\^.*\n?)?", re.MULTILINE),
}
"""What commands may write in the folder of a repository, and what in it makes a later git run a program,
write outside of the work tree or show other commits."""

MOST_STATE = 64 << 20
"""Bytes of such a file; a longer one counts as harmful."""

REBASE_TODO = "/rebase-merge/git-rebase-todo"

_UNVISITED = frozenset(("lfs", "annex"))
"""Folders of other programs in that of a repository, which have very many files."""

MOST_GIT_FOLDERS = 50_000
"""Folders that are looked through in that of a repository, not counting objects."""


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


def steering(root: int, folder: str) -> Iterator[str]:
    """What in the repository `folder`, its submodules and worktrees makes git run programs or act elsewhere.

    That is what exists of `IN_GIT_FOLDER`; files with `_HARM`; links, through which git writes; what has a
    protected name; and a folder that lies too deep, or after too many, to be looked into.
    """
    waiting = [(folder, True)]
    stores = set[str]()
    left = MOST_GIT_FOLDERS
    while waiting:
        path, may_be_git_dir = waiting.pop()
        left -= 1
        if len(os.fsencode(path)) > LONGEST_PATH or left < 0:
            yield path
            continue
        entries = _entries(root, path) or {}
        is_git_dir = path == folder or (may_be_git_dir and "HEAD" in entries)
        if is_git_dir:
            stores.add(f"{path}/objects")
            yield from _steering_here(root, path)
        for name, kind in entries.items():
            inner = f"{path}/{name}"
            is_foreign_link = kind == "link" and not (is_git_dir and name in _OWN_LINKS)
            # A new work tree has one here before it is moved to its place.
            is_pointer = name == GIT and kind == "file"
            # Other protected names could be those of branches, which have no dot in front.
            if is_foreign_link or ((protected_name(name) or "").startswith(".") and not is_pointer):
                yield inner
            elif kind == "folder" and not (is_git_dir and name in _UNVISITED):
                nested = name in NESTED_GIT_FOLDERS if is_git_dir else may_be_git_dir
                # Objects lie in 256 folders, and are named by what they hold.
                if len(name) > 2 or path not in stores:
                    waiting.append((inner, nested))


_OWN_LINKS = frozenset(("HEAD", *IN_GIT_FOLDER))
"""What is yielded as one of `IN_GIT_FOLDER`, or may be a link to a branch."""


def _steering_here(root: int, folder: str) -> Iterator[str]:
    for name in IN_GIT_FOLDER:
        path = os.path.join(folder, name)
        # New repositories have empty folders for addresses.
        if _exists(root, path) and not (name in ("remotes", "branches") and _entries(root, path) == {}):
            yield path
    for name, harm in _HARM.items():
        path = os.path.join(folder, name)
        if _exists(root, path):
            body = read(root, path, MOST_STATE)
            if body is None or harm.search(body):
                yield path


def put_back(root: int, path: str, moved: str, config: str | None) -> None:
    """Make the file at `path` below `root` again that was `moved` away: one with branches without harm, the
    configuration of a repository as it was, if it is known as `config`."""
    body = None if config is None else config.encode()
    if os.path.basename(path) == PACKED_REFS and (refs := read(NO_FOLDER, moved, MOST_STATE)):
        body = _HARM[PACKED_REFS].sub(b"", refs)
    if body is not None:
        with suppress(OSError):
            folder = opened(root, os.path.dirname(path))
            try:
                with os.fdopen(os.open(os.path.basename(path), _CREATE, 0o644, dir_fd=folder), "wb") as made:
                    made.write(body)
            finally:
                os.close(folder)


def _exists(root: int | None, path: str) -> bool:
    try:
        os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return True


def _entries(root: int, path: str) -> dict[str, EntryKind] | None:
    """What lies in a folder, by name; None if it is none."""
    try:
        folder = os.open(path, _FOLDER, dir_fd=root)
    except OSError:
        return None
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry_kind(entry) for entry in entries}
    finally:
        os.close(folder)


def git_folder(path: str) -> str | None:
    """The folder of the repository that the absolute `path`, a `.git` of any kind, stands for; None if git
    takes it for none.

    What lies in the folder of another repository stands for that whole folder, and the folder of a worktree
    for that of the repository it belongs to.
    """
    if not os.path.isdir(path):
        text = read_text(NO_FOLDER, path, LONGEST_POINTER) or ""
        target = text.removeprefix("gitdir:").strip("\n").strip()
        if not text.startswith("gitdir:") or not target or "\0" in target:
            return None
        path = os.path.join(os.path.dirname(path), target)
    folder = os.path.realpath(path)
    parts = folder.split("/")
    names = [protected_name(part) for part in parts[:-1]]
    if GIT in names:
        return "/".join(parts[: names.index(GIT) + 1])
    shared = read_text(NO_FOLDER, f"{folder}/commondir", LONGEST_POINTER)
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


def is_harmless(root: int, path: str, roots: Mapping[str, int], known: str = "") -> bool:
    """Whether `path`, below `root` and one of `IN_GIT_FOLDER`, makes git run nothing and read nothing outside
    of the `roots`, but for what was in the configuration when it was `known`."""
    folder, _, name = path.rpartition("/")
    if name == "hooks":
        names = _entries(root, path)
        return names is not None and all(name.endswith(".sample") for name in names)
    if name == "commondir":
        is_in_place = folder.rpartition("/")[0].endswith(f"{GIT}/worktrees")
        return is_in_place and read_text(root, path, LONGEST_POINTER) == SHARED
    text = read_text(root, path, LONGEST_CONFIG)
    place = next(at for at, descriptor in roots.items() if descriptor == root)
    if text is not None and name in CONFIGS:
        # What goes on in the next line may be another setting here.
        known_lines = set[tuple[str, str]]() if "\\\n" in text else set(_in_sections(known))
        added = set(_in_sections(text)) - known_lines
        lines = [_TAME.fullmatch(section) and _TAME.fullmatch(line) for section, line in added]
        work_tree = os.path.join(place, folder.removesuffix(GIT))
        return all(line and _is_inside(roots, work_tree, line["path"]) for line in lines)
    if text is not None and name == "alternates":
        objects = os.path.join(place, os.path.dirname(folder))
        # A quoted path is another one for git.
        return "\0" not in text and all(
            line[:1] != '"' and _is_inside(roots, objects, line) for line in text.split("\n")
        )
    return False


def _in_sections(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a configuration, each with that of its section."""
    section = ""
    for line in (line.strip(" \t\r\v\f") for line in text.split("\n")):
        section = line if line.startswith("[") else section
        yield section, line


def _is_inside(roots: Iterable[str], folder: str, path: str | None) -> bool:
    """Whether `path`, from `folder`, leads into one of the `roots`; also if there is none."""
    target = os.path.realpath(os.path.join(folder, (path or "").removeprefix("file://").strip()))
    return not path or any(lies_in(root, target) for root in map(os.path.realpath, roots))


def read_text(root: int, path: str, most: int) -> str | None:
    """The text of a file of at most `most` bytes; None when it is longer, not text, or no file."""
    body = read(root, path, most)
    try:
        return None if body is None else body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def read(root: int, path: str, most: int) -> bytes | None:
    """A file of at most `most` bytes; None when it is longer or no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return None
    try:
        with os.fdopen(file, "rb") as opened_file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            body = opened_file.read(most + 1)
            return body if len(body) <= most else None
    except OSError:
        return None
