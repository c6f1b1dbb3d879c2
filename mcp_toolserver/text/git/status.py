"""Parses and formats the output of `git status --porcelain=v2 --branch -z`."""

from collections.abc import Iterable, Iterator

from mcp_toolserver.capabilities.git import GitChange, GitState

_NO_COMMIT = "(initial)"
_NO_BRANCH = "(detached)"
_FIELDS = {"1": 8, "2": 9, "u": 10}
"""Words before the path, by kind of entry."""

_RENAMED = "2"


def parsed(answer: bytes, *, complete: bool = True) -> GitState:
    """Parse a status. If it is not `complete`, the last entry is dropped, because it may be cut."""
    items = answer.decode("utf-8", "surrogateescape").split("\0")
    heads: dict[str, str] = {}
    changes: list[GitChange] = []
    # A cut in the name before a rename would leave its other half missing, so the last two are dropped.
    entries = iter(items[:-1] if complete else items[:-2])
    for item in entries:
        if item.startswith("# "):
            name, _, value = item.removeprefix("# ").partition(" ")
            heads[name] = value
        elif item:
            changes.append(_change(item, entries))
    ahead, _, behind = heads.get("branch.ab", "+0 -0").partition(" ")
    commit, branch = heads.get("branch.oid", _NO_COMMIT), heads.get("branch.head", _NO_BRANCH)
    return GitState(
        branch="" if branch == _NO_BRANCH else branch,
        head="" if commit == _NO_COMMIT else commit,
        upstream=heads.get("branch.upstream", ""),
        ahead=abs(int(ahead)),
        behind=abs(int(behind)),
        changes=tuple(changes),
        complete=complete,
    )


def _change(item: str, rest: Iterator[str]) -> GitChange:
    kind = item[0]
    if kind not in _FIELDS:
        return GitChange(path=item[2:], staged=kind, unstaged=kind, origin="")
    *words, path = item.split(" ", _FIELDS[kind])
    origin = next(rest, "") if kind == _RENAMED else ""
    return GitChange(path=path, staged=words[1][0], unstaged=words[1][1], origin=origin)


_WORDS = {
    "M": "modified",
    "T": "type changed",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "unmerged",
}
_UNMERGED = frozenset({"DD", "AU", "UD", "UA", "DU", "AA", "UU"})


def short(status: GitState, changes: Iterable[GitChange]) -> Iterator[str]:
    """Yield lines as `git status --short --branch` prints them."""
    yield f"## {_branch(status)}"
    for change in changes:
        letters = f"{change.staged}{change.unstaged}".replace(".", " ")
        yield f"{letters} {_moved(change)}"


def long(status: GitState, changes: Iterable[GitChange]) -> Iterator[str]:
    """Yield the status in words, grouped into unmerged, staged, not staged and untracked files."""
    yield f"On {_branch(status)}"
    listed = tuple(changes)
    for title, lines in (
        ("Unmerged", [_moved(change) for change in listed if is_unmerged(change)]),
        ("Staged", [line for change in listed if (line := _word(change, change.staged))]),
        ("Not staged", [line for change in listed if (line := _word(change, change.unstaged))]),
        ("Untracked", [change.path for change in listed if change.staged == "?"]),
    ):
        if lines:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)


def is_unmerged(change: GitChange) -> bool:
    """Whether the file has conflicts of a merge."""
    return f"{change.staged}{change.unstaged}" in _UNMERGED


def _word(change: GitChange, letter: str) -> str:
    """Describe a staged or unstaged change; empty if `letter` stands for none."""
    if letter not in _WORDS or is_unmerged(change):
        return ""
    moved = letter in "RC"
    return f"{_WORDS[letter]}: {_moved(change) if moved else change.path}"


def _moved(change: GitChange) -> str:
    return f"{change.origin} -> {change.path}" if change.origin else change.path


def _branch(status: GitState) -> str:
    name = status.branch or f"no branch, at {status.head[:12]}"
    if not status.head:
        name = f"{name} (no commits yet)"
    if not status.upstream:
        return name
    apart = [
        f"{word} {count}" for word, count in (("ahead", status.ahead), ("behind", status.behind)) if count
    ]
    return f"{name}...{status.upstream}" + (f" [{', '.join(apart)}]" if apart else "")
