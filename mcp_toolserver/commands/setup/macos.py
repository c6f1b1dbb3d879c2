"""What a user of macOS has to allow before a server can use its folders.

Since macOS 10.15, a program needs the user's consent for Desktop, Documents, Downloads, iCloud Drive, and
network and removable volumes (https://support.apple.com/guide/security/secddd1d86a6/web). The system asks for
the application that is responsible for a process, and stores the answer for it. That is the application that
started it (https://www.qt.io/blog/the-curious-case-of-the-responsible-process): the client, or the
terminal of `setup`. An operation that is refused fails with EPERM
(https://developer.apple.com/forums/thread/678819).
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcp_toolserver.commands.setup.places import contains

_FOLDERS = ("Desktop", "Documents", "Downloads", "Library/Mobile Documents")
"""In the home folder; the last is iCloud Drive."""


def privacy_notes(title: str, roots: Sequence[str], home: Path) -> Iterator[str]:
    """What to tell the user of the client `title` about the `roots`; nothing on other systems than macOS."""
    guarded = [root for root in roots if sys.platform == "darwin" and _is_guarded(root, home)]
    if guarded:
        yield (
            f"macOS asks once whether {title} may use {', '.join(guarded)}. After No, the tools get "
            f'"Operation not permitted"; the answer is in System Settings → Privacy & Security → Files and '
            f"Folders → {title}. Now macOS may ask the same for this terminal."
        )


def _is_guarded(root: str, home: Path) -> bool:
    if any(contains(str(home / folder), root) for folder in _FOLDERS):
        return True
    # The disk that the system starts from is there too, as a link.
    return os.path.realpath(root).startswith("/Volumes/")
