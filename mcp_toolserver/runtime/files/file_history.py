"""The interface to what a session knows of files, and the checks that use it before a file is replaced."""

from collections import Counter
from typing import Protocol

from mcp_toolserver.capabilities.files import CanonicalPath, Previous
from mcp_toolserver.errors import Conflict
from mcp_toolserver.runtime.files.atomic_write import FileId
from mcp_toolserver.text.redact_secrets import is_secret_file


class FileHistory(Protocol):
    """Which contents of files a session has read or written, and the contents that its calls replaced."""

    def saw(self, file: FileId) -> None:
        """Record that the session has read this content."""
        ...

    def wrote(self, file: FileId) -> None:
        """Record that the session has written this content."""
        ...

    def knows(self, file: FileId) -> bool:
        """Whether the session has read or written this content."""
        ...

    def keep(self, path: str, file: FileId, content: bytes) -> Previous:
        """Store the `content` that is to be replaced at the absolute `path`; it is on disk when this returns.

        Content that the session wrote itself need not be on disk yet.

        Raises:
            OSError: it cannot be stored; `strerror` says why.
        """
        ...

    def drop(self, previous: Previous) -> None:
        """Remove what `keep` returned, because nothing was replaced."""
        ...

    def content(self, handle: str, path: str) -> bytes:
        """The content kept under `handle`.

        Raises:
            NotFound: there is none, or it was the content of another file than `path`.
        """
        ...


def keep_previous(history: FileHistory, path: str, file: FileId, content: bytes) -> Previous | None:
    """Keep `content`, the file at the absolute `path`, if there is any; say why if that is not possible."""
    if not content:
        return None
    if is_secret_file(path.rpartition("/")[2], content):
        return Previous(why="it looks like credentials, which the server does not copy")
    try:
        return history.keep(path, file, content)
    except OSError as error:
        return Previous(why=error.strerror or str(error))


def check_loss(path: CanonicalPath, before: bytes, after: bytes) -> None:
    """Check that the new content of a file that the session does not know keeps half of the old one.

    Raises:
        Conflict: it does not.
    """
    if drops_most(before, after):
        raise Conflict(
            f"'{path}' exists, its {len(before)} bytes were not read in this session as they are now, and "
            "the new content drops more than half of them. Nothing was changed. Read the file first; or send "
            "overwrite: true, or its expected_sha256, if all of it is to be replaced."
        )


def drops_most(before: bytes, after: bytes) -> bool:
    """Whether `after` lacks more than half of `before`, measured in bytes of whole lines.

    The order of lines, their line endings and the whitespace around them do not count.
    """
    half = (len(before) + 1) // 2
    if after.startswith(before[:half]) or after.endswith(before[-half:]):
        # The usual case, found without splitting a large file.
        return False
    old, new = (Counter(map(bytes.strip, content.split(b"\n"))) for content in (before, after))
    return 2 * sum(map(len, (old & new).elements())) < sum(map(len, old.elements()))


def check_kept(path: CanonicalPath, previous: Previous | None) -> None:
    """Check that the content of a file that the session does not know could be kept.

    Raises:
        Conflict: it could not.
    """
    if previous is not None and previous.why:
        raise Conflict(
            f"'{path}' exists, was not read in this session as it is now, and its content cannot be kept for "
            f"undo: {previous.why}. Nothing was changed. Read the file first; or send overwrite: true, or "
            "its expected_sha256, to replace it for good."
        )
