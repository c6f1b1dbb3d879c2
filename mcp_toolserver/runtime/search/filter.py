"""Filters the files that ripgrep finds by the caller's glob and the operator's rules.

ripgrep's own globs override ignore files, and its types include hidden files. So globs are matched here;
ripgrep only gets simple file name patterns, to skip other files.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.search.glob import expand, matcher

Wanted = Callable[[str], bool]

_PLAIN_NAME = re.compile(r"(?:[\w. @+-]|\*(?!\*))+", re.ASCII)
"""Patterns that have the same meaning in ripgrep and here."""


@dataclass(frozen=True, kw_only=True)
class Include:
    """A compiled glob, relative to the searched folder."""

    matches: Wanted | None = None
    """None for everything."""
    names: tuple[str, ...] | None = None
    """Patterns for the last component of every match; None when there is no such list."""
    names_suffice: bool = False
    """Whether everything with such a name matches."""
    names_hidden: bool = False
    """Whether it names files or folders that start with a dot."""


def include(glob: str | None) -> Include:
    """Compile a glob; with a `!` in front, for everything that it does not match.

    Raises:
        InvalidInput: it leaves the folder, or cannot be compiled.
    """
    if glob is None:
        return Include()
    alternatives = _expanded(glob.removeprefix("!"))
    matches = matcher(glob.removeprefix("!"))
    if glob.startswith("!"):
        return Include(matches=lambda name: not matches(name))
    names = tuple(alternative.rpartition("/")[2] for alternative in alternatives)
    is_plain = all(map(_PLAIN_NAME.fullmatch, names))
    is_any_depth = all(
        alternative in (name, f"**/{name}") for alternative, name in zip(alternatives, names, strict=True)
    )
    if is_plain and is_any_depth and "*" in names:
        return Include()
    return Include(
        matches=matches,
        names=names if is_plain and "*" not in names else None,
        names_suffice=is_plain and is_any_depth,
        names_hidden=any(
            part.startswith(".") and part != "." for glob in alternatives for part in glob.split("/")
        ),
    )


def _expanded(glob: str) -> Sequence[str]:
    try:
        alternatives = expand(glob)
    except ValueError as error:
        raise InvalidInput(f"'{glob[:80]}' cannot be used: {error}.") from None
    if any(alternative.startswith("/") for alternative in alternatives):
        raise InvalidInput(
            f"'{glob[:80]}' is absolute, but is matched inside `path`. Give the folder as `path`."
        )
    return alternatives


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Accepts files that match a glob and that neither a rule nor a leading dot hides."""

    matches: Wanted | None = None
    """None for everything."""
    is_hidden: Wanted | None = None
    """Whether a rule hides a file; None when there are no rules."""
    dots: bool = False
    """Whether dot files are included."""

    def __call__(self, name: str) -> bool:
        if not self.dots and (name.startswith(".") or "/." in name):
            return False
        if self.matches is not None and not self.matches(name):
            return False
        return self.is_hidden is None or not self.is_hidden(name)

    @property
    def is_open(self) -> bool:
        """Whether only a leading dot can exclude a file."""
        return self.matches is None and self.is_hidden is None
