"""Removes comments and string literals from source text, so that a search finds names in code only."""

import re
from functools import cache

from mcp_toolserver.text.code.languages import Language

_INTERPOLATION = re.compile(r"\{[^{}]*\}|\$\w+|[\\$]\([^()]*\)")
"""Code inside a string literal, in the forms of all languages: `{x}`, `$x`, `$(x)`, `\\(x)`."""

_VISIBLE = re.compile(r"[^\r\n]")


def code_only(text: str, language: Language) -> str:
    """Return `text` with comments and string literals replaced by spaces; every other character keeps its
    place. Code that a string literal interpolates stays."""
    if not (language.skipped or language.interpolated):
        return text
    return _pattern(language).sub(_blank, text)


@cache
def _pattern(language: Language) -> "re.Pattern[str]":
    interpolated, skipped = (
        "|".join(forms) or r"(?!)" for forms in (language.interpolated, language.skipped)
    )
    return re.compile(f"(?P<interpolated>{interpolated})|{skipped}", re.MULTILINE)


def _blank(found: "re.Match[str]") -> str:
    literal = found[0]
    if found["interpolated"] is None:
        return _VISIBLE.sub(" ", literal)
    blank, done = "", 0
    for code in _INTERPOLATION.finditer(literal):
        blank += _VISIBLE.sub(" ", literal[done : code.start()]) + code[0]
        done = code.end()
    return blank + _VISIBLE.sub(" ", literal[done:])
