"""What the stand-in is asked: its command line, which is part of ripgrep's."""

from collections.abc import Sequence
from dataclasses import dataclass


class Refused(Exception):
    """The search cannot be made; the text is for standard error."""


_FLAGS = frozenset(
    (
        *("null", "no-follow", "no-require-git", "no-ignore-parent", "no-ignore-global"),
        *("no-ignore-messages", "with-filename", "line-number", "crlf", "max-columns-preview", "heading"),
        *("byte-offset", "no-context-separator", "files", "hidden", "no-ignore", "ignore-case", "multiline"),
        *("multiline-dotall", "files-with-matches", "count"),
    )
)
_VALUED = frozenset(
    (
        *(
            "color",
            "glob",
            "regex-size-limit",
            "dfa-size-limit",
            "sort",
            "sortr",
            "type",
            "type-add",
            "ignore-file",
        ),
        *("before-context", "after-context", "max-columns"),
    )
)
"""Many only say what is done here anyway; they are taken and not looked at."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked."""

    flags: frozenset[str]
    values: dict[str, list[str]]
    pattern: str
    place: str

    def value(self, name: str) -> str | None:
        """The last value given for an option."""
        return self.values.get(name, [None])[-1]

    def number(self, name: str) -> int:
        """The value of an option that is a number; 0 when it is not given."""
        return int(self.value(name) or 0)


def options(arguments: Sequence[str]) -> Options:
    """Read the command line: options as one word each, then `-e PATTERN --`, then the place."""
    given, place = list(arguments[:-1]), arguments[-1]
    pattern = ""
    if "-e" in given:
        at = given.index("-e")
        pattern = given[at + 1]
        given = given[:at]
    values: dict[str, list[str]] = {}
    flags: set[str] = set()
    for option in given:
        name, assigned, value = option.removeprefix("--").partition("=")
        if name not in (_VALUED if assigned else _FLAGS):
            raise Refused(f"unrecognized flag --{name}")
        if assigned:
            values.setdefault(name, []).append(value)
        else:
            flags.add(name)
    return Options(flags=frozenset(flags), values=values, pattern=pattern, place=place)
