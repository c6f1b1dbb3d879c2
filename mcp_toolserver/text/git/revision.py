"""Revisions that can only mean commits.

An object that is no commit, such as a file by its id, has no path that a rule could hide. `^{commit}` makes
git take commits and nothing else.
"""

import re

_RANGE = re.compile(r"(.*?)(\.{2,3})(.*)", re.DOTALL)
_COMMIT = "^{commit}"


def peeled(text: str) -> str:
    """Rewrite `text`, a commit or a range of two, so that git takes it for commits only.

    Raises:
        ValueError: it names something else than commits; the message says what to give instead.
    """
    if ":" in text:
        raise ValueError(f"'{text}' names a file in a commit. Give the commit alone, and the file as `path`.")
    if text.startswith("^"):
        raise ValueError(f"'{text}' excludes commits. Give a range, such as main..HEAD.")
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
