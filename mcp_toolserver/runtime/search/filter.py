"""Which of the files that a search program names are wanted.

The program's own globs would bring back what ignore files exclude, and its types what is hidden. So globs are
matched here. The program only gets the names of plain ones, to spare it the other files.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.glob import expand, matcher

Wanted = Callable[[str], bool]

_PLAIN_NAME = re.compile(r"(?:[\w. @+-]|\*(?!\*))+", re.ASCII)
"""Names that mean the same to ripgrep as to us."""


@dataclass(frozen=True, kw_only=True)
class Include:
    """A glob, beneath the searched folder."""

    matches: Wanted | None = None
    """None for everything."""
    names: tuple[str, ...] | None = None
    """Patterns one of which the last component of every match matches; None when that cannot be said."""
    names_suffice: bool = False
    """Whether everything with such a name matches."""
    names_hidden: bool = False
    """Whether it asks for files or folders whose names start with a dot."""


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
        names_hidden=any(_names_hidden(part) for glob in alternatives for part in glob.split("/")),
    )


def _names_hidden(part: str) -> bool:
    return part.startswith(".") and part != "."


def _expanded(glob: str) -> Sequence[str]:
    try:
        alternatives = expand(glob)
    except ValueError as error:
        raise InvalidInput(f"'{glob[:80]}' cannot be used: {error}.") from None
    if any(alternative.startswith("/") for alternative in alternatives):
        raise InvalidInput(
            f"'{glob[:80]}' is absolute, but is matched beneath `path`. Give the folder as `path`."
        )
    return alternatives


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What a glob matches, and neither a rule nor a dot in front of a name hides."""

    matches: Wanted | None = None
    """None for everything."""
    is_hidden: Wanted | None = None
    """Whether a rule hides it. None when there are no rules, so that nobody has to be asked."""
    dots: bool = False
    """Whether dot files are wanted."""

    def __call__(self, name: str) -> bool:
        if not self.dots and (name.startswith(".") or "/." in name):
            return False
        if self.matches is not None and not self.matches(name):
            return False
        return self.is_hidden is None or not self.is_hidden(name)

    @property
    def is_open(self) -> bool:
        """Whether only a dot can hide a file."""
        return self.matches is None and self.is_hidden is None
