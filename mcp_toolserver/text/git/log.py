"""Parses the output of `git log`, `git blame` and `git for-each-ref` with NUL-separated fields; and names
remotes, without the credentials in their addresses.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from mcp_toolserver.capabilities.git import GitBranch, GitCommit, GitLine

COMMIT_FORMAT = "--format=%H%x00%an%x00%ae%x00%aI%x00%s%x00%b"
"""To be given with `-z`."""

_COMMIT_FIELDS = 6

BRANCH_FORMAT = (
    "--format=%(refname)%00%(objectname)%00%(committerdate:iso-strict)%00%(upstream:short)%00%(HEAD)%00"
)
_BRANCH_FIELDS = 5

_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/?#]*@)?(?P<rest>[^?#]*)(?P<query>.*)", re.DOTALL
)
_BLANK = "[redacted]"
_SSH = "ssh://"
_BRANCH = re.compile(r"refs/(?:heads|remotes)/(.+)(?<!/HEAD)")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def commits(answer: bytes) -> tuple[GitCommit, ...]:
    """Parse commits, in the order printed, without one that was cut."""
    fields = answer.decode("utf-8", "replace").split("\0")
    return tuple(
        GitCommit(id=id_, author=author, email=email, date=date, subject=subject, body=body.strip())
        for id_, author, email, date, subject, body in zip(
            *(fields[number:-1:_COMMIT_FIELDS] for number in range(_COMMIT_FIELDS)), strict=False
        )
    )


def references(answer: bytes) -> tuple[tuple[GitBranch, ...], int]:
    """Parse branches, in the order printed, and count tags; the HEAD of a remote is not a branch."""
    fields = answer.decode("utf-8", "replace").split("\0")
    names = [field.removeprefix("\n") for field in fields[:-1:_BRANCH_FIELDS]]
    rest = zip(*(fields[number:-1:_BRANCH_FIELDS] for number in range(1, _BRANCH_FIELDS)), strict=False)
    found = tuple(
        GitBranch(name=branch[1], commit=commit, date=date, upstream=upstream, current=current == "*")
        for name, (commit, date, upstream, current) in zip(names, rest, strict=False)
        if (branch := _BRANCH.fullmatch(name))
    )
    return found, sum(name.startswith("refs/tags/") for name in names)


def blamed(answer: bytes) -> Iterator[GitLine]:
    """Parse the lines that `git blame --porcelain` prints."""
    authors: dict[str, str] = {}
    days: dict[str, str] = {}
    id_, number = "", 0
    # Lines end with a line feed and with nothing else: other separators belong to the text.
    for line in answer.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(" ")
        if line.startswith("\t"):
            text, day = line[1:].removesuffix("\r"), days.get(id_, "")
            yield GitLine(number=number, text=text, commit=id_, author=authors.get(id_, ""), date=day)
        elif name == "author":
            authors[id_] = value
        elif name == "author-time":
            days[id_] = datetime.fromtimestamp(int(value), UTC).date().isoformat()
        elif _ID.fullmatch(name):
            id_, number = name, int(value.split(" ")[1])


def blanked(address: str) -> str:
    """Remove password, token and query from `address`; the user of ssh, which is not secret, stays."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address
    user, query = found["user"] or "", found["query"]
    if user:
        name, separator, _ = user.removesuffix("@").partition(":")
        shown = f"{name}:{_BLANK}" if separator else name
        user = f"{shown if found['scheme'].lower() == _SSH else _BLANK}@"
    return f"{found['scheme']}{user}{found['rest']}{query[:1] and query[0] + _BLANK}"


def remotes(settings: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the names and addresses of the remotes in a configuration, in its order, without credentials."""
    found: dict[str, str] = {}
    for setting, value in settings:
        section, _, rest = setting.partition(".")
        name, _, last = rest.rpartition(".")
        if section == "remote" and last == "url":
            found.setdefault(name, blanked(value))
    return tuple(found.items())
