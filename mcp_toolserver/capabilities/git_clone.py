"""Copies of whole repositories."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class CloneQuery:
    """What to clone, and to where."""

    url: str = ""
    """Canonical and https; empty where `folder` is cloned."""
    folder: CanonicalPath | None = None
    """A repository in the workspace."""
    path: CanonicalPath
    """The new folder."""
    branch: str = ""
    """Empty is the one that the repository itself names."""
    depth: int = 0
    """The last so many commits; 0 is all."""


@dataclass(frozen=True, kw_only=True)
class Cloned:
    """What came of it."""

    commit: str = ""
    """Empty for a repository without any."""
    branch: str = ""
    """Empty for a commit on no branch."""
    files: int = 0
    size: int = 0
    """Bytes of the files."""
    notes: tuple[str, ...] = ()
    """What its reader should know as well: sentences."""


class Clones(Protocol):
    """Cloning. Nothing that the repository names is run, and nothing is left of a clone that failed."""

    async def clone(self, query: CloneQuery, report: Report) -> Cloned:
        """Make a new folder with the repository in it.

        Raises:
            Conflict: there is something at the path.
            NotFound: there is no such repository, or no such branch.
            Denied: the host is not public, or the path is not for writing.
            InvalidInput: the repository is too large.
            TimedOut, Unavailable: it took too long, or cannot be done here.
        """
        ...
