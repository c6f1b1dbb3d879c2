"""Refuses allowed calls whose command is catastrophic in any workspace.

This is a safety net against accidents, not a security boundary: a command can hide what it does from any
check of its text. The boundary is the permission mode.
"""

import re

from mcp_toolserver.policy.rules import Request

_CATASTROPHES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "removes a whole system or home folder",
        re.compile(
            r"(sudo +)?rm +(?=.*(-\w*[rR]|--recursive))(-\S+ +)*"
            r"(--no-preserve-root|/\*?|~/?\*?|\$HOME/?\*?)( .*)?"
        ),
    ),
    ("makes a file system over a device", re.compile(r"(sudo +)?mkfs(\.\w+)? .*")),
    ("writes straight to a disk", re.compile(r"(sudo +)?dd +.*\bof=/dev/(sd|nvme|vd|hd|disk|mmcblk)\w*.*")),
    ("stops the machine", re.compile(r"(sudo +)?(shutdown|reboot|halt|poweroff)( .*)?")),
    ("kills every process", re.compile(r"(sudo +)?kill +(-\w+ +)*-1")),
)


def objection(request: Request) -> str | None:
    """Why the command of a call must not run, or None."""
    for subject in request.subjects:
        for spelling in subject:
            for what, form in _CATASTROPHES:
                if form.fullmatch(spelling.strip()):
                    return (
                        f"This command {what}; the safety check stopped it. Do not retry it; take a narrower "
                        "step."
                    )
    return None
