"""Devices that a command may use and not change.

Bubblewrap gives every command the machine's own /dev/null and its kin. Who owns them, as root does, may
change their mode and times even without capabilities, and so for everybody. A device on a read-only mount can
still be written; only the node cannot be changed. So there are such mounts first, and bubblewrap passes
them on.
"""

import os
import stat

from mcp_toolserver.runtime.sandbox.layers import kernel

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_MOUNTS = "/proc/self/ns/mnt"
_NULL_DEVICE = os.makedev(1, 3)


def fixed_devices() -> int:
    """A mount namespace in which the devices that this user owns are unchangeable, open; to be made once.

    -1 where there is none to be made in advance.
    """
    here = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not (owned := _changeable()):
            return -1
        kernel.unshare(kernel.CLONE_NEWNS)
        try:
            _fix(owned)
            return os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            kernel.setns(here)
            # Entering a mount namespace moves the process to its top folder.
            os.fchdir(folder)
    except OSError:
        return -1
    finally:
        os.close(here)
        os.close(folder)


def fix_devices(namespace: int = -1) -> None:
    """Make the devices that this user owns unchangeable, for this process and what it starts.

    `namespace` is the result of `fixed_devices`; entering it moves this process to the top folder. If
    standard input is /dev/null, it is opened again.

    Raises:
        OSError: the kernel refused.
    """
    if namespace >= 0:
        enter_devices(namespace)
    elif owned := _changeable():
        _leave_mounts()
        _fix(owned)
    reopen_null()


def enter_devices(namespace: int) -> None:
    """Enter `namespace`, the result of `fixed_devices`, if there is one.

    Raises:
        OSError: the kernel refused.
    """
    if namespace >= 0:
        kernel.setns(namespace)


def fix_owned_devices(namespace: int) -> None:
    """Make the devices that this user owns unchangeable in the mount namespace of this process, which is its
    own, unless `namespace`, which it has entered before, has done so.

    Raises:
        OSError: the kernel refused.
    """
    if namespace < 0 and (owned := _changeable()):
        _fix(owned)


def reopen_null() -> None:
    """Open standard input anew, where it is /dev/null: a descriptor belongs to a mount too."""
    status = os.fstat(0)
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL_DEVICE:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)


def _changeable() -> list[str]:
    return [device for device in DEVICES if _is_ours(device)]


def _is_ours(device: str) -> bool:
    try:
        return os.stat(device).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _fix(devices: list[str]) -> None:
    kernel.mount(None, "/", kernel.MS_REC | kernel.MS_SLAVE)
    for device in devices:
        kernel.mount(device, device, kernel.MS_BIND)
        # In a user namespace the kernel refuses to lift these, which the /dev of containers has.
        kept = os.statvfs(device).f_flag & (kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        kernel.mount(None, device, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kept)


def _leave_mounts() -> None:
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
    except PermissionError:
        # A root without the power to mount, as in many containers, is like any other user.
        kernel.enter_user_namespace(kernel.CLONE_NEWNS)
