"""Cloning repositories."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class CloneQuery:
    """What to clone, and to where."""

    url: str = ""
    """Canonical https URL; empty if `folder` is cloned."""
    folder: CanonicalPath | None = None
    """A repository in the workspace."""
    path: CanonicalPath
    """The new folder."""
    branch: str = ""
    """The branch to check out; empty for the default branch of the repository."""
    depth: int = 0
    """Number of newest commits to fetch; 0 for all."""


@dataclass(frozen=True, kw_only=True)
class Cloned:
    """The result of a clone."""

    commit: str = ""
    """The checked-out commit; empty for a repository without commits."""
    branch: str = ""
    """The checked-out branch; empty if HEAD is detached."""
    files: int = 0
    size: int = 0
    """Bytes of the files."""
    notes: tuple[str, ...] = ()
    """Additional information for the caller, as sentences."""


class Clones(Protocol):
    """Cloning. Nothing that the repository names is run, and nothing is left of a clone that failed."""

    async def clone(self, query: CloneQuery, report: Report) -> Cloned:
        """Clone a repository into a new folder.

        Raises:
            Conflict: there is something at the path.
            NotFound: there is no such repository, or no such branch.
            Denied: the host is not public, or the path is not for writing.
            InvalidInput: the repository is too large.
            TimedOut, Unavailable: it took too long, or cannot be done here.
        """
        ...
