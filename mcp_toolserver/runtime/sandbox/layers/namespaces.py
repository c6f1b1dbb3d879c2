"""The namespaces that commands share: devices that none can change, and what the commands of a session have.

Bubblewrap gives every command the machine's own /dev/null and its kin. Who owns them, as root does, may
change their mode and times even without capabilities, and so for everybody. A device on a read-only mount can
still be written; only the node cannot be changed. So there are such mounts first, and bubblewrap passes
them on.

The commands of a session share a loopback interface and a temporary folder. A namespace exists as long as a
descriptor of it is open, so no process has to stay in it. They belong to a user namespace of their own,
because an ordinary user can make and enter the others only by way of one. A command is in a user namespace
below that and has no capability in either, so it can change neither the interface nor the mounts. The
temporary folder is a file system in memory, whose size the kernel bounds, mounted in these namespaces alone:
it goes with them.
"""

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.runtime.sandbox.broker.fd_passing import receive, send
from mcp_toolserver.runtime.sandbox.broker.limit_settings import session_size
from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.spec import PROXY_PORT

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

MAX_FILES = 1 << 18
"""In the temporary folder of a session, folders included."""

_NULL_DEVICE = os.makedev(1, 3)
_SET_FLAGS, _UP = 0x8914, 0x1
_INTERFACE = struct.Struct("16sh14x")

# --- devices ---------------------------------------------------------------------------------------------


def fix_devices() -> None:
    """Make the devices that this user owns unchangeable, for this process and what it starts.

    Raises:
        OSError: the kernel refused.
    """
    if owned := _changeable():
        try:
            kernel.unshare(kernel.CLONE_NEWNS)
        except PermissionError:
            # A root without the power to mount, as in many containers, is like any other user.
            kernel.enter_user_namespace(kernel.CLONE_NEWNS)
        _fix(owned)


def reopen_null() -> None:
    """Open standard input anew, where it is /dev/null: a descriptor belongs to a mount too."""
    status = os.fstat(0)
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL_DEVICE:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)


def _changeable() -> list[str]:
    """The devices that this user owns."""
    return [one for one in DEVICES if os.path.exists(one) and os.stat(one).st_uid == os.geteuid()]


def _fix(devices: list[str]) -> None:
    """Make `devices` unchangeable in the mount namespace of this process, of which no other shows changes."""
    kernel.mount(None, "/", kernel.MS_REC | kernel.MS_SLAVE)
    for device in devices:
        kernel.mount(device, device, kernel.MS_BIND)
        # In a user namespace the kernel refuses to lift these, which the /dev of containers has.
        kept = os.statvfs(device).f_flag & (kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        kernel.mount(None, device, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kept)


def _namespace(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


# --- sessions --------------------------------------------------------------------------------------------


def mount_point(state: str) -> str:
    """Where the temporary folder is mounted: in the state folder `state`, which the server may use."""
    return os.path.join(os.path.realpath(state), "temporary")


@dataclass(frozen=True)
class SessionNamespaces:
    """The namespaces, open."""

    user: int
    mounts: int
    network: int = -1
    """-1 where commands have the machine's network."""
    temporary: int = -1
    """The temporary folder, open, in the process that made it."""
    listener: int = -1
    """There, too: what the proxy accepts on. Its process closes it once the proxy has it."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The namespaces, as they are passed to another process."""
        return tuple(one for one in (self.user, self.mounts, self.network) if one >= 0)

    @classmethod
    def received(cls, descriptors: Sequence[int]) -> "SessionNamespaces | None":
        """Take the `descriptors` that another process passed; None if it passed none."""
        return cls(*descriptors) if descriptors else None

    def join(self) -> None:
        """Move this process, which has one thread, into the namespaces, and to the top folder.

        Raises:
            OSError: the kernel refused; the process may be in a part of them.
        """
        # The power to enter the others comes with the first.
        kernel.setns(self.user)
        if self.network >= 0:
            kernel.setns(self.network)
        kernel.setns(self.mounts)

    def close(self) -> None:
        """Close the descriptors. The namespaces go with the last process in them."""
        for descriptor in (*self.descriptors, self.temporary):
            if descriptor >= 0:
                os.close(descriptor)


def create_session(state: str, *, network: bool, proxied: bool = False) -> SessionNamespaces:
    """Create the namespaces of a session in a short-lived fork of this process.

    `state` is the state folder. `network` is whether commands have the machine's network, so that they
    get no other. `proxied` opens a socket that listens on `PROXY_PORT` in their own.

    Raises:
        OSError: they cannot be made, or loopback cannot be brought up.
    """
    os.makedirs(mount_point(state), mode=0o700, exist_ok=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = os.fork()
        if child == 0:
            _create(theirs, mount_point(state), network=network, proxied=proxied)
        theirs.close()
        try:
            temporary, *namespaces = receive(ours) or [-1]
            listener = namespaces.pop() if proxied and namespaces else -1
        finally:
            _, status = os.waitpid(child, 0)
    if (received := SessionNamespaces.received(namespaces)) is not None:
        return replace(received, temporary=temporary, listener=listener)
    code = os.waitstatus_to_exitcode(status)
    raise OSError(max(code, 0), os.strerror(code) if code > 0 else "the process that makes it was killed")


def _create(to: socket.socket, folder: str, *, network: bool, proxied: bool) -> None:
    """Create the namespaces around this fork, send descriptors of them, and exit with 0 or an errno."""
    status = 1
    with contextlib.suppress(BaseException):
        try:
            # Not dumpable, an unprivileged process does not own its files in /proc.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            kernel.enter_user_namespace(kernel.CLONE_NEWNS | (0 if network else kernel.CLONE_NEWNET))
            _fix(_changeable())
            if not network:
                _bring_up_loopback()
            made = [_mounted(folder), *map(_namespace, ("user", "mnt", *(() if network else ("net",))))]
            if proxied:
                made.append(socket.create_server(("127.0.0.1", PROXY_PORT), backlog=128).detach())
            send(to, made)
            status = 0
        except OSError as error:
            status = error.errno or 1
    os._exit(status)


def _mounted(folder: str) -> int:
    """Mount a temporary folder over `folder`; returns it, open."""
    options = f"size={session_size()},nr_inodes={MAX_FILES},mode=0700"
    kernel.mount("tmpfs", folder, kernel.MS_NOSUID | kernel.MS_NODEV, kind="tmpfs", options=options)
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, _INTERFACE.pack(b"lo", _UP))
