"""Joins text that was wrapped for an editor into one line per paragraph."""

import re

_ITEM = re.compile(r"(?:[-*•]|\d+[.)])\s")
_FENCE = "```"
_CODE = "    "


def unwrapped(text: str) -> str:
    """Put each paragraph and each list item of `text` on one line.

    Paragraphs, list items, fenced code and indented code keep their breaks.
    """
    lines: list[str] = []
    is_fenced = False
    for line in text.strip().splitlines():
        if is_fence := line.lstrip().startswith(_FENCE):
            is_fenced = not is_fenced
        if is_fenced or is_fence or not _goes_on(lines, line):
            lines.append(line.rstrip())
        else:
            lines[-1] += f" {line.strip()}"
    return "\n".join(lines)


def _goes_on(before: list[str], line: str) -> bool:
    """Whether `line` goes on with the sentence of the last line before it."""
    last = before[-1] if before else ""
    if not last or not line.strip() or _ITEM.match(line.strip()):
        return False
    return not last.lstrip().startswith(_FENCE) and not last.startswith(_CODE)
