"""POSIX extended regular expressions, as Python's, and only what every implementation reads alike."""

from functools import lru_cache

_SPECIAL = frozenset(".[]()*+?{}|^$\\")
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z"}


@lru_cache(maxsize=4096)
def translate(pattern: str) -> bytes:
    """The same expression for Python's `re` on bytes, with `re.DOTALL`.

    Intervals, back references, escapes of letters, backslashes in brackets, and empty alternatives are
    refused: libsandbox has its own compiler of expressions, and no public source says what they mean to it.

    Raises:
        ValueError: it is none, or uses something whose meaning is not certain.
    """
    if not pattern or not pattern.isascii() or "\0" in pattern:
        raise ValueError(f"not a regular expression of ASCII characters: {pattern!r}")
    pieces: list[str] = []
    at, depth, repeatable, empty = 0, 0, False, True
    while at < len(pattern):
        character = pattern[at]
        at += 1
        match character:
            case "\\":
                if at == len(pattern) or pattern[at] not in _SPECIAL | {"/", "-"}:
                    raise ValueError(f"an escape of no special character in {pattern!r}")
                pieces.append(f"\\{pattern[at]}")
                at, repeatable, empty = at + 1, True, False
            case "[":
                end = _bracket(pattern, at)
                pieces.append(_set(pattern[at:end], pattern))
                at, repeatable, empty = end + 1, True, False
            case "*" | "+" | "?":
                if not repeatable:
                    raise ValueError(f"nothing to repeat in {pattern!r}")
                pieces.append(character)
                repeatable = False
            case "(" | "|" | ")":
                if character != "(" and empty:
                    raise ValueError(f"an empty alternative in {pattern!r}")
                depth += {"(": 1, ")": -1}.get(character, 0)
                if depth < 0:
                    raise ValueError(f"a parenthesis too many in {pattern!r}")
                pieces.append("(?:" if character == "(" else character)
                repeatable, empty = character == ")", character != ")"
            case "^" | "$":
                pieces.append("\\A" if character == "^" else "\\Z")
                repeatable, empty = False, False
            case "{" | "}" | "]":
                raise ValueError(f"{character} stands for itself only with a backslash in {pattern!r}")
            case _:
                pieces.append(character if character in "./" or character.isalnum() else f"\\{character}")
                repeatable, empty = True, False
    if depth or empty:
        raise ValueError(f"an open parenthesis or an empty alternative in {pattern!r}")
    return "".join(pieces).encode()


def _bracket(pattern: str, at: int) -> int:
    """Where the bracket expression ends whose content begins at `at`."""
    start = at + (pattern[at : at + 1] == "^")
    end = start + (pattern[start : start + 1] == "]")
    while pattern[end : end + 1] != "]":
        if pattern.startswith("[:", end):
            end = pattern.find(":]", end) + 1
            if not end:
                break
        end += 1
        if end > len(pattern):
            break
    if not pattern[end : end + 1]:
        raise ValueError(f"a bracket is not closed in {pattern!r}")
    return end


def _set(content: str, pattern: str) -> str:
    if "\\" in content:
        raise ValueError(f"a backslash in brackets in {pattern!r}")
    negated = content.startswith("^")
    content = content.removeprefix("^")
    for name, members in _CLASSES.items():
        content = content.replace(f"[:{name}:]", members)
    if not content or "[:" in content:
        raise ValueError(f"unknown or empty brackets in {pattern!r}")
    escaped = "".join(f"\\{each}" if each in "[]^&~|" else each for each in content)
    return f"[{'^' if negated else ''}{escaped}]"
