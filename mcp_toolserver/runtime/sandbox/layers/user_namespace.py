"""A user namespace of this process's own, in which it has every power over what is made with it."""

import errno
import os

from mcp_toolserver.runtime.sandbox.layers import kernel


def enter_user_namespace(others: int) -> None:
    """Move this process, which has one thread, to a new user namespace and to new namespaces of the kinds in
    `others`, which belong to it. User and group keep their numbers; all others are unmapped.

    Raises:
        Unsupported: this user may make none.
        OSError: the kernel refused.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.CLONE_NEWUSER | others)
    except PermissionError:
        raise kernel.Unsupported(errno.EPERM, "no user namespace can be made") from None
    _write("setgroups", "deny")
    _write("uid_map", f"{user} {user} 1")
    _write("gid_map", f"{group} {group} 1")


def _write(file: str, words: str) -> None:
    descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, words.encode())
    finally:
        os.close(descriptor)
