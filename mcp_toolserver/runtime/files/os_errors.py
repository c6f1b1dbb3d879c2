"""Translates errors of the operating system into errors that a model can act on."""

import errno
import stat
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, ToolError, Unavailable
from mcp_toolserver.runtime.files.libc import is_virtual
from mcp_toolserver.runtime.files.path_resolver import Escape, ParentOfMissing

_REASONS: Mapping[int, tuple[type[ToolError], str]] = {
    errno.ENOTDIR: (
        InvalidInput,
        "'{path}' cannot exist: a part of it is a file, not a folder. List the folder.",
    ),
    errno.EISDIR: (InvalidInput, "'{path}' is a folder, not a file. Name a file in it."),
    errno.ELOOP: (InvalidInput, "'{path}' leads through too many links. Use the path they lead to."),
    errno.ENAMETOOLONG: (InvalidInput, "'{path}' is too long or too deep. Use a shorter path."),
    errno.ENXIO: (InvalidInput, "'{path}' is not a regular file. Only regular files can be used."),
    errno.EAGAIN: (Conflict, "'{path}' is being moved by somebody. Try again."),
    errno.EEXIST: (Conflict, "'{path}' was created by somebody meanwhile. Read it, then retry."),
    errno.EACCES: (
        Denied,
        "The server's user has no permission for '{path}'. Ask the user to change that, or use another path.",
    ),
    errno.EROFS: (Denied, "'{path}' lies on a read-only file system. Nothing was changed; use another path."),
    errno.ENOSPC: (Unavailable, "The disk is full: '{path}' was not written. Tell the user."),
    errno.EFBIG: (Unavailable, "'{path}' was not written: the system does not allow a file of this size."),
    errno.EMFILE: (Unavailable, "Too many files are open in the server. Retry with fewer calls at once."),
    errno.EIO: (Unavailable, "The disk that holds '{path}' reports an error. Tell the user."),
}

_SAME = {
    errno.EPERM: errno.EACCES,
    errno.EDQUOT: errno.ENOSPC,
    errno.ENFILE: errno.EMFILE,
    errno.ESTALE: errno.EAGAIN,
}

_SPECIAL = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


class Changed(Exception):
    """The file is not the one that was read."""


@dataclass
class translate(AbstractContextManager["translate"]):  # noqa: N801  callers use it like a function
    """Translates failures to open or change `path`, in the caller's spelling, into a `ToolError`.

    A class, because every call uses several and `contextmanager` takes five times as long.
    """

    path: str
    roots: Sequence[str] = ()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, (Changed, Escape, ParentOfMissing, OSError)):
            raise _refusal(error, self.path, self.roots) from None


def _refusal(
    error: Changed | Escape | ParentOfMissing | OSError, path: str, roots: Sequence[str]
) -> ToolError:
    if isinstance(error, Changed):
        return Conflict(
            f"'{path}' was changed by somebody meanwhile; nothing was written. Read it again, then retry."
        )
    if isinstance(error, Escape):
        return _escaped(error, path, roots)
    if isinstance(error, ParentOfMissing):
        return InvalidInput(
            f"'{path}' goes back with '..' from a folder that does not exist. Write the path without '..'."
        )
    if isinstance(error, FileNotFoundError):
        start = f" in {roots[0]}" if roots and not path.startswith("/") else ""
        return NotFound(f"There is no '{path}'{start}.")
    code = error.errno or 0
    code = _SAME.get(code, code)
    if code in _REASONS:
        kind, text = _REASONS[code]
        return kind(text.format(path=path))
    return Unavailable(
        f"'{path}' cannot be used here: the system answers {errno.errorcode.get(code, 'an unknown error')}."
    )


def outside(path: str, roots: Sequence[str]) -> Denied:
    """The error for a path that lies in no root."""
    return Denied(f"'{path}' is outside the workspace. {_where(roots)}")


def _escaped(error: Escape, path: str, roots: Sequence[str]) -> Denied:
    if not error.link:
        return outside(path, roots)
    return Denied(
        f"'{path}' goes through the link {error.link!r}, which is absolute, and absolute links are not "
        f"followed. If its target {error.target!r} is inside the workspace, use that path. {_where(roots)}"
    )


def _where(roots: Sequence[str]) -> str:
    if not roots:
        return "No folder is shared with this server; the operator can start it with --root."
    return f"Use a path inside {', '.join(roots)}; a relative path starts in {roots[0]}."


def require_regular_file(mode: int, path: str) -> None:
    """Raises: InvalidInput: if `mode` is not that of a regular file."""
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"'{path}' is a folder, not a file. List it with glob_search, pattern '*'.")
    if not stat.S_ISREG(mode):
        kind = _SPECIAL.get(stat.S_IFMT(mode), "special file")
        raise InvalidInput(f"'{path}' is not a regular file but a {kind}. Only regular files can be used.")


def refuse_virtual(fd: int, path: str) -> None:
    """Raises: Denied: if `fd` lies on a virtual file system, such as /proc."""
    if is_virtual(fd):
        raise Denied(
            f"'{path}' lies on a file system that the kernel makes up, such as /proc or /sys. Files there "
            "cannot be used."
        )
