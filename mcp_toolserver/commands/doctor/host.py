"""Describes this machine as far as sandboxing depends on it."""

import errno
import os
import platform
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CONTAINER_MARKS: Mapping[str, str] = {
    "/var/run/secrets/kubernetes.io": "Kubernetes",
    "/run/.containerenv": "Podman",
    "/.dockerenv": "Docker",
}
"""Files that engines make in containers, the most specific first: CRI-O makes that of Podman in pods too."""

NETWORK_FILE_SYSTEMS = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs"),
    *("ceph", "glusterfs", "fuse.sshfs", "davfs", "vboxsf"),
)

_SWITCHES = {
    "apparmor": ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    "sysctl": ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    "none": ("/proc/sys/user/max_user_namespaces", "0"),
}
"""Files that forbid user namespaces, with the value that does."""


@dataclass(frozen=True, kw_only=True)
class Host:
    system: str
    """Linux, Darwin, Windows."""
    distributions: tuple[str, ...]
    """As /etc/os-release names this one and its parents, nearest first."""
    container: str
    """The engine that this container runs on; empty if this is none."""
    container_limits: tuple[str, ...] = ()
    """What of the container keeps bubblewrap from working: seccomp, proc, apparmor, selinux, capabilities."""
    wsl: bool
    root: bool
    """Whether this is the superuser."""
    namespaces_forbidden: tuple[str, ...]
    """Which switches of the kernel forbid user namespaces: apparmor, sysctl, none."""


@dataclass(frozen=True, kw_only=True)
class RootFacts:
    path: str
    file_system: str
    ignores_case: bool

    @property
    def is_remote(self) -> bool:
        """Whether other machines change it unseen."""
        return self.file_system in NETWORK_FILE_SYSTEMS


def look() -> Host:
    container = next((engine for mark, engine in CONTAINER_MARKS.items() if os.path.exists(mark)), "")
    return Host(
        system=platform.system(),
        distributions=_distributions(),
        container=container,
        container_limits=tuple(_container_limits()) if container else (),
        wsl="microsoft" in platform.release().lower(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        namespaces_forbidden=tuple(
            name for name, (file, value) in _SWITCHES.items() if _content(file).strip() == value
        ),
    )


def _container_limits() -> Iterator[str]:
    refusal, status = _namespace_refusal(), _content("/proc/self/status")
    label = _content("/proc/self/attr/current").rstrip("\0\n")
    if refusal in (errno.EPERM, errno.ENOSYS) and re.search("^Seccomp:\t2$", status, re.MULTILINE):
        yield "seccomp"
    if covers_proc(_content("/proc/self/mounts")):
        yield "proc"
    if label.endswith("(enforce)"):
        yield "apparmor"
    elif ":" in label and refusal == errno.EACCES:
        yield "selinux"
    # Bubblewrap takes them for a set-id program that was tampered with.
    if os.geteuid() != 0 and re.search("^CapPrm:\t.*[^0\n]", status, re.MULTILINE):
        yield "capabilities"


def covers_proc(mounts: str) -> bool:
    """Whether parts of /proc are covered, by a table as in /proc/self/mounts. The kernel then lets no user
    namespace mount another."""
    places = (line.split()[1] for line in mounts.splitlines())
    return any(place.startswith("/proc/") and place != "/proc/sys/fs/binfmt_misc" for place in places)


def _namespace_refusal() -> int:
    """The errno with which a fork of this process is refused a user namespace with mounts; 0 if it is not."""
    child = os.fork()
    if child == 0:
        refusal = errno.EPERM
        try:
            # It needs what only Linux has.
            from mcp_toolserver.runtime.sandbox.layers import kernel

            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
            kernel.mount(None, "/", kernel.MS_REC | kernel.MS_SLAVE)
            refusal = 0
        except OSError as error:
            refusal = error.errno or errno.EPERM
        finally:
            os._exit(refusal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _distributions() -> tuple[str, ...]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ()
    return (release.get("ID", ""), *release.get("ID_LIKE", "").split())


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def root_facts(path: str) -> RootFacts:
    return RootFacts(
        path=path,
        file_system=file_system(path, _content("/proc/self/mounts")),
        ignores_case=_ignores_case(path),
    )


def file_system(path: str, mounts: str) -> str:
    """What is mounted where `path` lies, by a table as in /proc/self/mounts; empty if unknown."""
    fields = (line.split() for line in mounts.splitlines())
    # Spaces in names are written as octal numbers.
    mounted = [(one[1].replace(r"\040", " "), one[2]) for one in fields if len(one) > 2]
    holding = [
        (where, kind) for where, kind in mounted if f"{path.rstrip('/')}/".startswith(f"{where.rstrip('/')}/")
    ]
    # The last of equal length lies over the others.
    return max(enumerate(holding), key=lambda one: (len(one[1][0]), one[0]))[1][1] if holding else ""


def _ignores_case(path: str) -> bool:
    """Whether a name that is there is also found in other letters. Nothing is written."""
    try:
        names = [name for name in os.listdir(path) if name.swapcase() != name]
    except OSError:
        return False
    if not names:
        return False
    name, other = os.path.join(path, names[0]), os.path.join(path, names[0].swapcase())
    return os.path.exists(other) and os.path.samefile(name, other)


def version(program: str | None, arguments: Sequence[str] = ("--version",)) -> str:
    """The first line of what `program` says of itself; empty when it does not run."""
    if program is None:
        return ""
    environment: Mapping[str, str] = {"PATH": os.defpath, "LC_ALL": "C"}
    try:
        said = subprocess.run(
            [program, *arguments],
            capture_output=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.decode(errors="replace").partition("\n")[0].strip()


def open_to_others(file: str) -> bool:
    try:
        return os.name == "posix" and bool(stat.S_IMODE(os.stat(file).st_mode) & 0o077)
    except OSError:
        return False
