"""Splits shell commands into the parts that rules match."""

import re
import shlex
from collections.abc import Sequence

_OPERATORS = re.compile(r"\$\(|[;|&\n\r(){}<>`]")
"""Where a simple command may begin or end. Quotes are not honoured, on purpose: a rule must see what a quoted
script would run, and a text that only looks like an operator costs a question at most."""

_PREFIX = re.compile(
    r"(?:(?:if|then|else|elif|do|while|until|time|!)(?=\s)|[A-Za-z_]\w*\+?=(?:\"[^\"]*\"|'[^']*'|\S*)(?=\s))\s+"
)
"""A word that may stand before the name of a command: a keyword, or an assignment."""


LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""


def simple_parts(command: str) -> tuple[str, ...]:
    """Return the command, then each simple command within it, without keywords and assignments before it.

    A rule that denies looks at all of them and so sees every part of a chain; a rule that allows must match
    all of them and so cannot be widened by chaining. Neither is a boundary: a shell has more ways to name a
    program than a text can show.
    """
    # The shell takes these away before anything else.
    joined = command.replace("\\\n", "")
    pieces = (piece.strip() for piece in _OPERATORS.split(joined))
    parts = (part for piece in pieces for part in (piece, _bare(piece)))
    return tuple(dict.fromkeys(part for part in (command.strip(), *parts) if part))


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
