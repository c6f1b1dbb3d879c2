"""Parses clone sources: an https URL or a folder. Other forms that git accepts can run programs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.text.file_names import check_spelling
from mcp_toolserver.text.web.urls import parse_url

_REMOTE = re.compile(r"[^/]*:")
"""How everything begins that git takes for another machine or for a program to run."""

_FILE = "file://"


@dataclass(frozen=True, kw_only=True)
class CloneSource:
    """One of them."""

    url: str = ""
    folder: str = ""

    def __str__(self) -> str:
        return self.url or self.folder

    @property
    def paths(self) -> tuple[str, ...]:
        """The folder, if it is one."""
        return (self.folder,) if self.folder else ()

    def respelt(self, canonical: Callable[[str], CanonicalPath]) -> "CloneSource":
        """Return this source with its canonical path. Raises: ToolError: the path cannot be used."""
        return replace(self, folder=canonical(self.folder)) if self.folder else self


def clone_source(text: str) -> CloneSource:
    """Read what was given.

    Raises:
        ValueError: it is neither.
    """
    if text.lower().startswith("https://"):
        url = parse_url(text)
        if "?" in url.target:
            raise ValueError("the address of a repository has no query; leave out `?` and what follows")
        return CloneSource(url=str(url))
    path = text.removeprefix(_FILE) if text.startswith(f"{_FILE}/") else text
    if not path or (path is text and _REMOTE.match(path)):
        raise ValueError("give an https:// address, or a folder of the workspace; nothing else is cloned")
    return CloneSource(folder=check_spelling(path))
