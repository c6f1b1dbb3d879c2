"""Splits shell commands into the parts that rules match, and tells whether a command is one that a rule
names, word by word.

A rule that denies or asks matches liberally: quotes, blanks, redirections, the folder of a program, what runs
another program (`env`, `sudo`, `sh -c`, ...) and options before the second word make no difference. A rule
that allows is strict: the command has to be just the words of the rule, and one that cannot be parsed is
never allowed.

Neither is a boundary: a shell has more ways to name a program than a text can show.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from mcp_toolserver.text.search.glob import wildcard
from mcp_toolserver.text.shell.script import SimpleCommand, is_read_whole, simple_commands

_OPERATORS = re.compile(r"\$\(|[;|&\n\r(){}<>`]")
"""Where a simple command may begin or end. Quotes are not honoured, on purpose: a rule must see what a quoted
script would run, and a text that only looks like an operator costs a question at most."""

_PREFIX = re.compile(
    r"(?:(?:if|then|else|elif|do|while|until|time|!)(?=\s)|[A-Za-z_]\w*\+?=(?:\"[^\"]*\"|'[^']*'|\S*)(?=\s))\s+"
)
"""A word that may stand before the name of a command: a keyword, or an assignment."""


LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""


@lru_cache(maxsize=1)  # the record of a call and the rules both ask
def simple_parts(command: str) -> tuple[str, ...]:
    """Return the command, then each simple command within it, without keywords and assignments before it.

    A rule that denies looks at all of them and so sees every part of a chain; a rule that allows must match
    all of them and so cannot be widened by chaining.
    """
    # The shell takes these away before anything else.
    pieces = [*map(str.strip, _OPERATORS.split(command.replace("\\\n", "")))]
    parts = chain.from_iterable(zip(pieces, map(_bare, pieces), strict=True))
    return tuple(dict.fromkeys(filter(None, (command.strip(), *parts))))


def program(argv: Sequence[str]) -> str:
    """Return a script that replaces itself by the program of an argument list with any arguments."""
    return f"exec {shlex.join(argv)}"


def argument(text: str) -> str:
    """Check that `text` can be one argument of a program, and return it.

    Raises:
        ValueError: it is too long.
    """
    size = len(text.encode())
    if size > LONGEST_ARGUMENT:
        raise ValueError(
            f"it is {size} bytes long, and at most {LONGEST_ARGUMENT} can be passed on; put it into a file"
        )
    return text


def _bare(piece: str) -> str:
    while match := _PREFIX.match(piece):
        piece = piece[match.end() :]
    return piece


_BETWEEN = "\0"
"""Separator of words in comparisons; no word of a command contains it."""

_ANY_END = ":*"

_QUOTES = re.compile(r"['\"\\]")

_MOST_PLACES = 32
"""Places in a command at which one rule is tried. Where there are more, the rule is taken to match."""

Words = tuple[str, ...]


def text_matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern for text, in which `*` is any text, and `:*` at the end stands for more words."""
    start = pattern.removesuffix(_ANY_END)
    alone, followed = wildcard(start), wildcard(f"{start} *")
    return alone if start == pattern else lambda text: alone(text) or followed(text)


class CommandPattern:
    """A pattern such as `git push:*`: words, in which `*` is any text, and `:*` for more words."""

    def __init__(self, text: str) -> None:
        start = text.removesuffix(_ANY_END)
        self._words = _words(start) or _loose_words(start)
        alone = _BETWEEN.join(self._words)
        self._first = wildcard(self._words[0] if self._words else "")
        self._is_open = text.endswith(_ANY_END)
        self._alone = wildcard(alone)
        self._followed = wildcard(f"{alone}{_BETWEEN}*")
        self._raw = text_matcher(text)

    def permits(self, command: str) -> bool:
        """Whether the command, as one simple command, has the words of the pattern, each in its place."""
        words = _words(command)
        return words is not None and self._is(words)

    def matches(self, command: str) -> bool:
        """Whether the command may run what the pattern names."""
        if self._raw(command):
            return True
        if self.permits(command) or any(map(self._at, simple_commands(command))):
            return True
        # What a limit leaves unread may be anything.
        return not is_read_whole(command)

    def _is(self, words: Sequence[str]) -> bool:
        text = _BETWEEN.join(words)
        return self._alone(text) or (self._is_open and self._followed(text))

    def _at(self, one: SimpleCommand) -> bool:
        """Whether it is the command of the pattern, but for the folder of the program and options before the
        second word."""
        if not (words := one.words):
            return False
        program = next(filter(self._first, (one.words[0], one.name)), None)
        if program is None:
            return False
        if self._is((program, *words[1:])):
            return True
        second = next(iter(self._words[1:]), "")
        seconds = [place for place in _after_options(words) if words[place] == second]
        if len(seconds) > _MOST_PLACES:
            return True
        return any(self._is((program, *words[place:])) for place in seconds)


def _after_options(words: Words) -> Iterator[int]:
    """Yield the positions that may have the second word: each option may have one word as its value."""
    may_be_value = False
    for place, word in enumerate(words[1:], 1):
        is_option = word.startswith("-")
        if not is_option:
            yield place
            if not may_be_value:
                return
        may_be_value = is_option


def _words(text: str) -> Words | None:
    """Split a simple command as a shell does, quotes removed; None if it cannot be split."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return None


def _loose_words(text: str) -> Words:
    """Split at white space and drop quotes, for commands that cannot be parsed."""
    return tuple(_QUOTES.sub("", text).split())
