"""The temporary folder that the commands of a session may share."""

from collections.abc import Iterable

from mcp_toolserver.text.file_names import lies_in

TEMPORARY = "/tmp"  # noqa: S108  # the session's own
"""Its name for commands and file tools."""


def may_share(roots: Iterable[str], made: Iterable[str] = ()) -> bool:
    """Whether commands may share a temporary folder with these roots and these mounts.

    No mount may lie in it: one command could replace a folder on the way to it while the sandbox of another
    is set up, and so move the mount. It may lie in no root, or it would have two names.
    """
    below = (path for path in (*roots, *made) if path != TEMPORARY)
    return not any(lies_in(root, TEMPORARY) for root in roots) and not any(
        lies_in(TEMPORARY, path) for path in below
    )
