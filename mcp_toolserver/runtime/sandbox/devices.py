"""Devices that a command may use and not change.

Bubblewrap gives every command the machine's own /dev/null and its kin. Who owns them, as root does, may
change their mode and times even without capabilities, and so for everybody. A device on a read-only mount can
still be written; only the node cannot be changed. So this process gets such mounts first, and bubblewrap
passes them on.
"""

import errno
import os
import stat

from mcp_toolserver.runtime.sandbox import kernel

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_NOTHING = os.makedev(1, 3)


def fix_devices() -> None:
    """Make the devices that this user owns unchangeable, for this process and what it starts.

    Standard input, where it is /dev/null, is opened anew, because a descriptor belongs to a mount too.

    Raises:
        OSError: the kernel refused.
    """
    owned = [device for device in DEVICES if _is_ours(device)]
    if not owned:
        return
    _leave_mounts()
    kernel.mount(None, "/", kernel.MS_REC | kernel.MS_SLAVE)
    for device in owned:
        kernel.mount(device, device, kernel.MS_BIND)
        kernel.mount(None, device, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)
    _reopen_nothing()


def _is_ours(device: str) -> bool:
    try:
        return os.stat(device).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _leave_mounts() -> None:
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
    except PermissionError:
        # A root without the power to mount, as in many containers, is like any other user.
        _leave_users()


def _leave_users() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    except PermissionError:
        raise kernel.Unsupported(errno.EPERM, "no user namespace can be made to keep devices in") from None
    _tell("setgroups", "deny")
    _tell("uid_map", f"{user} {user} 1")
    _tell("gid_map", f"{group} {group} 1")


def _tell(file: str, words: str) -> None:
    descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, words.encode())
    finally:
        os.close(descriptor)


def _reopen_nothing() -> None:
    status = os.fstat(0)
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NOTHING:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
