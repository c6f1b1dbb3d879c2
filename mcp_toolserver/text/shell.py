"""What a shell command consists of, as far as rules need to know."""

import re

_OPERATORS = re.compile(r"\$\(|[;|&\n\r(){}<>`]")
"""Where a simple command may begin or end. Quotes are not honoured, on purpose: a rule must see what a quoted
script would run, and a text that only looks like an operator costs a question at most."""

_PREFIX = re.compile(
    r"(?:(?:if|then|else|elif|do|while|until|time|!)(?=\s)|[A-Za-z_]\w*\+?=(?:\"[^\"]*\"|'[^']*'|\S*)(?=\s))\s+"
)
"""A word that may stand before the name of a command: a keyword, or an assignment."""


def simple_parts(command: str) -> tuple[str, ...]:
    """The command, then each simple command that it may hold, without keywords and assignments before it.

    A rule that denies looks at all of them and so sees every part of a chain; a rule that allows must match
    all of them and so cannot be widened by chaining. Neither is a boundary: a shell has more ways to name a
    program than a text can show.
    """
    pieces = (piece.strip() for piece in _OPERATORS.split(command))
    parts = (part for piece in pieces for part in (piece, _bare(piece)))
    return tuple(dict.fromkeys(part for part in (command.strip(), *parts) if part))


def _bare(piece: str) -> str:
    while match := _PREFIX.match(piece):
        piece = piece[match.end() :]
    return piece
