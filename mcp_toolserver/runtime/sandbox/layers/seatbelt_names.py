"""Protected names as regular expressions of Seatbelt, matched as the blindest macOS volume compares names.

Volumes may ignore case and Unicode form (APFS, HFS+); HFS+ also ignores invisible characters. A pattern holds
ASCII only: any run of other bytes may stand between two letters, and for a letter that some other character
folds to. That protects a few names too many and none too few.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mcp_toolserver.runtime.sandbox.protected.names import (
    GIT,
    IN_GIT_FOLDER,
    NAMES,
    NESTED_GIT_FOLDERS,
)

_OTHER = "[^ -~]"
"""A byte that is no printable ASCII; never a slash."""

_FOLDED = re.compile("ff|fi|fl|st|k|s|.")
"""A letter, or letters, that one character outside ASCII folds to: ligatures, the Kelvin sign, the long s."""

_DANGEROUS = tuple(name for name in IN_GIT_FOLDER if "/" not in name)
_ATTRIBUTES = "info/attributes"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Paths that end in a name, or lie below it."""

    regex: str
    """From the slash before the name; matches up to its end."""
    below: bool = True
    """Whether it matches what lies below, too."""
    kind: str = ""
    """A vnode-type that a path must have as well."""
    operations: str = "file-write*"

    def in_place(self, place: str) -> str:
        """The regular expression for paths in `place`, whose own path may match already."""
        end = "(/|$)" if self.below else "$"
        own = len(re.findall(f"{self.regex}(?=/|$)", place))
        return f"{self.regex}(/.*)?" * own + self.regex + end


def whole_names(writable_names: Iterable[str]) -> Iterator[Pattern]:
    """All protected names but `.git` and `writable_names`, each with what lies below it."""
    for name in sorted(NAMES.difference((GIT, *writable_names))):
        yield Pattern(regex=_path(name))


def whole_git() -> Iterator[Pattern]:
    """The folder of a repository, with all that is in it."""
    yield Pattern(regex=_path(GIT))


def git_of_commands() -> Iterator[Pattern]:
    """With --git writable: what a command does not write in a repository, and the repository as a whole.

    Folders of submodules and worktrees are left out entirely: one prepared elsewhere could be moved in.
    """
    for folder in (GIT, f"{GIT}/info"):
        yield Pattern(regex=_path(folder), below=False, operations="file-write-create file-write-unlink")
    yield Pattern(regex=_path(GIT), below=False, kind="REGULAR-FILE")
    for name in (*_DANGEROUS, _ATTRIBUTES, *NESTED_GIT_FOLDERS):
        yield Pattern(regex=_path(f"{GIT}/{name}"))


def git_of_helpers() -> Iterator[Pattern]:
    """What git, run by the server, does not write in a repository.

    A new worktree has a `commondir`, so that one is left out below `worktrees`.
    """
    nested = "|".join(map(_spelt, NESTED_GIT_FOLDERS))
    for name in (*_DANGEROUS, _ATTRIBUTES):
        yield Pattern(regex=_path(f"{GIT}/{name}"))
        if name != "commondir":
            yield Pattern(regex=f"{_path(GIT)}/({nested})/(.*/)?{_path(name)[1:]}")


def _path(name: str) -> str:
    return "".join(f"/{_spelt(part)}" for part in name.split("/"))


def _spelt(part: str) -> str:
    return f"{_OTHER}*" + "".join(_letters(found) + f"{_OTHER}*" for found in _FOLDED.findall(part))


def _letters(text: str) -> str:
    one = "".join(map(_letter, text))
    return f"({one}|{_OTHER}+)" if _is_folded_to(text) else one


def _is_folded_to(text: str) -> bool:
    return text in ("ff", "fi", "fl", "st", "k", "s")


def _letter(character: str) -> str:
    return f"[{character}{character.upper()}]" if character.isalpha() else f"[{character}]"
