"""Output as it would look on a terminal: without colours, and with the last state of progress bars."""

import re

_STYLE = re.compile(r"\x1b\[[0-9;:]*m|\x1b\(B|(?<=\r)\x1b\[[0-2]?K|\x1b\[[0-2]?K(?=\r)")
"""Colours and styles, the reset of the character set that `tput sgr0` adds, and what erases a line that is
written again from its start. Anything else may move text, so it stays and is escaped."""


def as_on_terminal(text: str) -> str:
    """Remove colours from `text`; of a line that was written several times, keep what was written last."""
    if "\x1b" in text:
        text = _STYLE.sub("", text)
    if text.count("\r") == text.count("\r\n"):
        return text
    return "\n".join(map(_last_state, text.split("\n")))


def _last_state(line: str) -> str:
    if "\r" not in line:
        return line
    return next((state for state in reversed(line.split("\r")) if state), "")
