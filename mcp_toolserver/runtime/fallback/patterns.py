"""Regular expressions in Rust's spelling, compiled to Python's."""

import re
import sys
from collections.abc import Iterator

from mcp_toolserver.runtime.fallback.options import Options, Refused

_TOKEN = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])"
    r"|(?P<escape>\\(?:x\{[0-9A-Fa-f]{1,6}\}|.))"
    r"|(?P<group>\(\?(?:P?<(?=\w)|<?[=!]|P=|>|\())"
    r"|(?P<other>.)",
    re.DOTALL,
)
_NAMED_SET = re.compile(r"\[:(\w+):\]")
_NAMED_SETS = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}


def compiled(given: Options) -> re.Pattern[str]:
    """The pattern as Python's regular expression."""
    is_multiline = "multiline" in given.flags
    flags = re.MULTILINE | re.DOTALL if is_multiline else re.NOFLAG
    if "ignore-case" in given.flags:
        flags |= re.IGNORECASE
    try:
        return re.compile("".join(_translated(given.pattern, is_multiline=is_multiline)), flags)
    except re.error as error:
        raise _refused(given.pattern, error.pos or 0, error.msg) from None
    except (OverflowError, RecursionError):
        raise Refused("compiled regex exceeds size limit") from None


def _refused(pattern: str, at: int, why: str) -> Refused:
    return Refused(f"regex parse error:\n    (?:{pattern})\n    {' ' * (at + len('(?:'))}^\nerror: {why}")


def _translated(pattern: str, *, is_multiline: bool) -> Iterator[str]:
    """Rust's spelling to Python's, as far as they differ in common use."""
    for token in _TOKEN.finditer(pattern):
        if not is_multiline and token[0] in ("\n", r"\n"):
            raise Refused('the literal "\\n" is not allowed in a regex')
        if token["set"]:
            yield _NAMED_SET.sub(lambda match: _NAMED_SETS.get(match[1], match[0]), token[0])
        elif token["escape"]:
            yield _escape(pattern, token)
        elif token["group"]:
            yield _group(pattern, token)
        else:
            yield token[0]


def _escape(pattern: str, token: re.Match[str]) -> str:
    if token[0][1] in "123456789":
        raise _refused(pattern, token.start(), "backreferences are not supported")
    if token[0].startswith("\\x{"):
        return re.escape(chr(min(int(token[0][3:-1], 16), sys.maxunicode)))
    return r"\Z" if token[0] == r"\z" else token[0]


def _group(pattern: str, token: re.Match[str]) -> str:
    if token[0] in ("(?<", "(?P<"):
        return "(?P<"
    if token[0][-1] in "=!" and "P" not in token[0]:
        raise _refused(pattern, token.start(), "look-around is not supported")
    raise _refused(pattern, token.start(), "unrecognized flag")
