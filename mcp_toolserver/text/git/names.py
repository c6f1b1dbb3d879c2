"""Checks what callers name to git: revisions, authors and worktrees.

A revision can only mean commits: an object that is none, such as a file by its id, has no path that a rule
could hide. `^{commit}` makes git take commits and nothing else.
"""

import re
from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput

_RANGE = re.compile(r"(.*?)(\.{2,3})(.*)", re.DOTALL)
_COMMIT = "^{commit}"


def peeled(text: str) -> str:
    """Rewrite `text`, a commit or a range of two, so that git takes it for commits only."""
    if ":" in text:
        raise InvalidInput(
            f"'{text}' names a file in a commit. Give the commit alone, and the file as `path`."
        )
    if text.startswith("^"):
        raise InvalidInput(f"'{text}' excludes commits. Give a range, such as main..HEAD.")
    found = _RANGE.fullmatch(text)
    if found is None:
        return f"{text}{_COMMIT}"
    start, dots, end = found.groups()
    return f"{start or 'HEAD'}{_COMMIT}{dots}{end or 'HEAD'}{_COMMIT}"


def plain(text: str) -> str:
    """Return one end of a `peeled` text as the caller gave it."""
    return text.removesuffix(_COMMIT)


def ends(text: str) -> tuple[str, ...]:
    """Return the one or two commits that `peeled` text names."""
    found = _RANGE.fullmatch(text)
    return (text,) if found is None else (found[1], found[3])


_AUTHOR = re.compile(r"(?P<name>[^<>\x00-\x1f]*[^<>\x00-\x1f\s]) *<(?P<email>[^<>\x00-\x1f\s]+)>")
_CRUD = re.compile(r"^[\s.,:;\"\\']+|[\s.,:;\"\\']+$")
"""Git removes these characters from both ends of a name."""


@dataclass(frozen=True, kw_only=True)
class Author:
    """Name and email address, without the characters that git removes."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


def parse_author(text: str) -> Author:
    """Parse `Name <email>`. Raises: ValueError: it does not have this form, or a part is empty."""
    found = _AUTHOR.fullmatch(text.strip())
    if found is None or not (name := _CRUD.sub("", found["name"])):
        raise ValueError("an author has the form 'Name <email>'")
    return Author(name=name, email=found["email"])


MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check_worktree_name(name: str) -> str:
    """Return `name` if it can name a folder and a branch. Raises: ValueError: it cannot."""
    if (
        len(name) > MAX_NAME
        or not _NAME.fullmatch(name)
        or ".." in name
        or name.lower().endswith((".", ".lock", ".git"))
    ):
        raise ValueError(
            f"a worktree's name has 1 to {MAX_NAME} letters, digits, '-', '_' and '.', begins with a letter, "
            "digit or '_', and does not contain '..' or end with '.', '.lock' or '.git'"
        )
    return name
