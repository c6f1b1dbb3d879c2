"""What the doctor found out about this machine and these settings, before it judges."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from mcp_toolserver import confine
from mcp_toolserver.capabilities.prices import Capability
from mcp_toolserver.commands import host
from mcp_toolserver.commands.host import Host, Place
from mcp_toolserver.commands.own_process import Tried, try_lock
from mcp_toolserver.runtime.beneath import Openat2, best_engine
from mcp_toolserver.runtime.desktop_programs import lacking_desktop
from mcp_toolserver.runtime.found_programs import Found
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.host_programs import KERNEL
from mcp_toolserver.runtime.sandbox.bounds import describe
from mcp_toolserver.runtime.sandbox.charter import Charter, find_shell
from mcp_toolserver.runtime.sandbox.kernel import landlock_abi
from mcp_toolserver.runtime.sandbox.landlock import mended_errata, missing_rights
from mcp_toolserver.runtime.sandbox.walls import Proof
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.chain import FOLDER as AUDIT
from mcp_toolserver.stores.folder import state_folder

READ_ONLY, WORKSPACE_WRITE, FULL = "read-only", "workspace-write", "danger-full-access"
MODES = (READ_ONLY, WORKSPACE_WRITE, FULL)
CONFINED = (READ_ONLY, WORKSPACE_WRITE)

NOWHERE = Proof(commands="none", helpers="none", reasons=(f"there are no walls on {sys.platform}",))
NO_SERVER = Tried(problem=NOWHERE.reasons[0])


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All of it."""

    host: Host
    mode: str
    """The configured one."""
    roots: tuple[Place, ...]
    broker: bool
    openat2: bool
    abi: int
    """The version of Landlock; 0 is none."""
    missing: tuple[str, ...]
    """What that version cannot refuse, in words."""
    errata: tuple[int, ...]
    filters: str
    """Why system calls cannot be filtered; empty when they can."""
    proofs: Mapping[str, Proof]
    """Of commands, by confined mode."""
    servers: Mapping[str, Tried]
    """Of the server's own process, by confined mode."""
    unprotectable: str
    """Why a root cannot be protected; empty when it can."""
    programs: tuple[str, ...]
    """Where bubblewrap is."""
    ripgrep: str | None
    ripgrep_version: str
    git: str | None
    git_version: str
    network: bool
    """Whether commands may use it."""
    git_writable: bool
    allow_unconfined_server: bool
    limits: tuple[str, ...]
    variables: tuple[str, ...]
    """Names of what commands find in their environment."""
    raw_output: bool
    state: str
    audit: str
    exposed: tuple[str, ...]
    """Files and folders of the server that other users can read or change."""
    powershell: str | None = None
    engine: str | None = None
    """What starts containers."""
    desktop: Mapping[str, str] = field(default_factory=dict[str, str])
    """What can be done there, and by which program."""
    no_desktop: Mapping[str, str] = field(default_factory=dict[str, str])
    """What cannot, and why."""
    kernel: bool = False
    """Whether code can run in a Jupyter kernel."""


def examine(settings: Settings, found: Found, *, broker: bool) -> Facts:
    """Look at everything, and try the walls.

    Raises:
        SettingsError: a root is no folder.
    """
    charter = confine.charter(settings, found)
    walls = charter.walls
    abi = landlock_abi() if broker else 0
    return Facts(
        host=host.look(),
        mode=walls.mode,
        roots=tuple(map(host.place, Workspace(settings.root).roots)),
        broker=broker,
        openat2=isinstance(best_engine(), Openat2),
        abi=abi,
        missing=missing_rights(abi),
        errata=mended_errata() if abi else (),
        filters=_filters() if broker else f"there are none on {sys.platform}",
        proofs={mode: _proof(charter, mode) if broker else NOWHERE for mode in CONFINED},
        servers={mode: _server(settings, mode) if broker else NO_SERVER for mode in CONFINED},
        unprotectable=_unprotectable(charter) if broker else "",
        programs=walls.programs,
        ripgrep=found.ripgrep,
        ripgrep_version=host.version(found.ripgrep, ("--no-config", "--version")),
        git=found.git,
        git_version=host.version(found.git),
        network=walls.network,
        git_writable=walls.git_writable,
        allow_unconfined_server=settings.allow_unconfined_server,
        limits=describe(charter.bounds),
        variables=tuple(sorted(charter.environment)),
        raw_output=settings.raw_output,
        state=state_folder(settings.state_dir),
        audit=os.path.join(state_folder(settings.state_dir), AUDIT),
        exposed=_exposed(settings),
        powershell=found.powershell,
        engine=found.engine,
        desktop={_spoken(need): program for need, program in found.desktop.programs.items()},
        no_desktop={
            _spoken(need): why
            for need, why in lacking_desktop(found.desktop, private=settings.desktop_private).items()
        },
        kernel=all(find_spec(name) is not None for name in KERNEL),
    )


def _spoken(need: Capability) -> str:
    """`desktop_open` is to open, among what a desktop can do."""
    return need.value.removeprefix("desktop_").replace("_", " ")


def _server(settings: Settings, mode: str) -> Tried:
    return try_lock(mode, network=settings.network != "none")


def _filters() -> str:
    from mcp_toolserver.runtime.sandbox.canary import missing_filter

    return missing_filter()


def _proof(charter: Charter, mode: str) -> Proof:
    # It needs what only Linux has.
    from mcp_toolserver.runtime.sandbox.confined import proven

    shell = charter.shell or find_shell(charter.environment.get("PATH", ""))
    return proven(replace(charter, shell=shell, walls=replace(charter.walls, mode=mode)))


def _unprotectable(charter: Charter) -> str:
    """Why commands that write could not be kept from something in the real roots."""
    from mcp_toolserver.runtime.sandbox.confined import ground
    from mcp_toolserver.runtime.sandbox.guard import Unprotectable, look

    if charter.walls.mode != WORKSPACE_WRITE:
        return ""
    on = ground(charter.walls)
    try:
        look(charter.walls, on.roots, on.surveys)
    except Unprotectable as error:
        return str(error)
    finally:
        for root in on.roots.values():
            os.close(root)
    return ""


def _exposed(settings: Settings) -> tuple[str, ...]:
    places = (settings.token_file, state_folder(settings.state_dir))
    return tuple(place for place in places if place and host.open_to_others(place))
