"""Reads and replaces the configuration files of clients: atomically, with a backup, or not at all."""

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mcp_toolserver.errors import SettingsError

MAX_BYTES = 16 * 2**20
BACKUP = ".before-mcp-toolserver"
"""The ending of a backup: the file as it was before setup first changed it."""


_BOM = "\ufeff"


class Broken(ValueError):
    """A configuration file is not in its format; nothing is changed."""

    def __init__(self, what: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {what}")


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A configuration file as it was read."""

    path: Path
    """Where it is: the target, if the client's path is a link."""
    link: Path | None
    """The client's path, if that is a link."""
    content: bytes | None
    """None: there is no such file yet."""
    status: os.stat_result | None

    @property
    def text(self) -> str:
        """The content without a byte order mark, lines ending with "\\n"; empty where there is no file."""
        text = (self.content or b"").decode().removeprefix(_BOM)
        return text.replace("\r\n", "\n") if self._has_crlf else text

    def encoded(self, text: str) -> bytes:
        """A new content, with the byte order mark and the line endings of this one."""
        mark = _BOM if (self.content or b"").decode().startswith(_BOM) else ""
        return (mark + (text.replace("\n", "\r\n") if self._has_crlf else text)).encode()

    @property
    def _has_crlf(self) -> bool:
        """Whether every line ends so; a text with both endings stays as it is."""
        content = self.content or b""
        return content.count(b"\n") == content.count(b"\r\n") > 0

    @property
    def backup(self) -> Path:
        """Where the backup is, or will be."""
        return self.path.with_name(self.path.name + BACKUP)


def read(path: Path, *, within: Path | None = None) -> ConfigFile:
    """Read a file that may be missing.

    Args:
        within: the folder that a link may not lead out of; None permits every target.

    Raises:
        SettingsError: it is not a regular file, too large, not UTF-8 or not readable, or a link leads out.
    """
    real = Path(os.path.realpath(path))
    if within is not None and not real.is_relative_to(os.path.realpath(within)):
        raise SettingsError(f"{path} leads to {real}, outside {within}; nothing was changed")
    link = None if real == path else path
    try:
        status = real.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(f"{real} is not a regular file; nothing was changed")
        if status.st_size > MAX_BYTES:
            raise SettingsError(f"{real} is larger than {MAX_BYTES} bytes; nothing was changed")
        content = real.read_bytes()
        content.decode()
    except FileNotFoundError:
        return ConfigFile(path=real, link=link, content=None, status=None)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise SettingsError(f"{real}, line {line}: the text is not UTF-8; nothing was changed") from None
    except OSError as error:
        raise SettingsError(f"cannot read {real}: {error.strerror}; nothing was changed") from None
    return ConfigFile(path=real, link=link, content=content, status=status)


def check_writable(file: ConfigFile) -> None:
    """Check that `write` may replace the file.

    Raises:
        SettingsError: it is read-only, or belongs to another user.
    """
    if file.status is None:
        return
    if not file.status.st_mode & stat.S_IWUSR or not os.access(file.path, os.W_OK):
        raise SettingsError(f"{file.path} is read-only; nothing was changed")
    if os.geteuid() not in (0, file.status.st_uid):
        raise SettingsError(f"{file.path} belongs to another user; nothing was changed")


def write(file: ConfigFile, text: str, *, backed_up: bool) -> None:
    """Replace the file, with the same mode and owner.

    Args:
        backed_up: keep the file as it was under the name of the backup, unless there is one.

    Raises:
        SettingsError: the file changed since it was read, or cannot be written.
    """
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if backed_up and file.content is not None and not os.path.lexists(file.backup):
            _replace(file, file.backup, file.content)
        _replace(file, file.path, file.encoded(text))
        descriptor = os.open(file.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SettingsError(f"cannot write {file.path}: {error.strerror}; nothing was changed") from None


def remove(path: Path) -> None:
    """Remove a file that setup created.

    Raises:
        SettingsError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot remove {path}: {error.strerror}") from None


def _replace(file: ConfigFile, target: Path, content: bytes) -> None:
    """Write `target`, next to `file`, with its mode and owner, if `file` is as it was read."""
    descriptor, name = tempfile.mkstemp(prefix=".mcp-toolserver-", dir=file.path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            if file.status is not None:
                owner, made = (file.status.st_uid, file.status.st_gid), os.fstat(descriptor)
                # Drives of Windows refuse a change of the owner.
                if owner != (made.st_uid, made.st_gid):
                    os.fchown(descriptor, *owner)
                os.fchmod(descriptor, stat.S_IMODE(file.status.st_mode))
            os.fsync(descriptor)
        if read(file.path).content != file.content:
            raise SettingsError(
                f"{file.path} was changed by another program meanwhile; nothing was changed. Close the "
                "client and run setup again"
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
