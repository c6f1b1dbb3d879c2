"""A machine as the doctor describes it, to be varied."""

from mcp_toolserver.commands.doctor.host import Host

LINUX = Host(
    system="Linux",
    release="6.18",
    machine="x86_64",
    distributions=("debian",),
    container="",
    wsl=False,
    root=False,
    namespaces_forbidden=(),
)
