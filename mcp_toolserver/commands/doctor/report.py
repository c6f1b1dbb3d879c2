"""`doctor --report FILE`: writes one file that a user can attach to an issue.

The file is JSON in ASCII, and an allow-list of what doctor finds: words of this program, numbers, versions,
and places in our code. No text of this machine is in it: no output, error message, name or path.
"""

import json
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import mcp_toolserver
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.doctor.doctor import Report, report
from mcp_toolserver.commands.doctor.facts import Facts, examine
from mcp_toolserver.commands.doctor.host import NETWORK_FILE_SYSTEMS
from mcp_toolserver.commands.doctor.install_hints import INSTALL
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.layers.landlock import missing_rights
from mcp_toolserver.settings import OPTIONS, TABLES, Option, Settings, Value

DISTRIBUTION = "mcp-toolserver"

_ABOUT = "Texts, names and paths of this machine are left out. Read the file before you publish it."

_LAYERS = ("summary", "file tools", "commands", "searches", "network", "ending")
"""Those that are described without words of this machine; the tests show what holds the server process."""

_FILE_SYSTEMS = {*NETWORK_FILE_SYSTEMS, "btrfs", "ext4", "f2fs", "overlay", "tmpfs", "virtiofs", "xfs", "zfs"}

_INSTALLERS = ("pip", "uv", "poetry", "pdm", "conda")
"""What may be in the file INSTALLER of a package."""

Json = str | int | float | bool | list["Json"] | dict[str, "Json"]


def write_report(invocation: Invocation, found: HostExecutables, start: Callable[[], Broker | None]) -> int:
    """Examine this machine, write the report to a new file, and say where it is.

    Args:
        start: starts the broker; None where there is none.

    Returns:
        The exit status of the command: 0, whatever the report says.

    Raises:
        SettingsError: the file exists or cannot be created.
    """
    file = Path(invocation.report).absolute()
    text = json.dumps(_content(invocation.settings, found, start), indent=2)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise SettingsError(f"--report: {file} exists; name a new file") from None
    except OSError as error:
        raise SettingsError(f"--report: cannot create {file}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(f"{text}\n")
    print(f"Wrote {file}\n{_ABOUT}")
    return 0


def _content(
    settings: Settings, found: HostExecutables, start: Callable[[], Broker | None]
) -> dict[str, Json]:
    content: dict[str, Json] = {
        "about": _ABOUT,
        "version": mcp_toolserver.__version__,
        "python": f"{sys.implementation.name} {'.'.join(map(str, sys.version_info[:3]))}",
        "installed by": installer(Path(sys.prefix)),
        "system": {
            "name": platform.system(),
            "release": _version(platform.release()),
            "macOS": _version(platform.mac_ver()[0]),
            "architecture": platform.machine(),
            "glibc": _version(platform.libc_ver()[1]),
        },
        "settings": dict(_settings(settings)),
        "missing programs": list(found.missing),
        "broker": False,
    }
    own = os.getpid()
    try:
        broker = start()
        # Reading the proof waits until the broker serves.
        content["broker"] = broker is not None and bool(broker.proof)
        facts = examine(settings, found, broker=broker is not None)
        return {**content, **judged(facts, report(facts))}
    except Exception as error:
        # A fork that was to become a broker must not write a report of its own.
        if os.getpid() != own:
            raise
        return {**content, "failure": {"error": type(error).__name__, "at": list(_places(error))}}


def _places(error: Exception) -> Iterator[str]:
    """`FILE:LINE FUNCTION` in our code, relative to the package, the outermost first."""
    package = os.path.dirname(os.path.abspath(mcp_toolserver.__file__))
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(f"{package}{os.sep}"):
            yield f"{os.path.relpath(frame.filename, package)}:{frame.lineno} {frame.name}"


def judged(facts: Facts, said: Report) -> dict[str, Json]:
    """What doctor found."""
    host = facts.host
    return {
        "status": said.status,
        "mode": said.mode,
        "kernel": {
            "openat2": facts.openat2,
            "landlock": facts.abi,
            "landlock does not restrict": list(missing_rights(facts.abi)),
            "landlock errata mended": list(facts.errata),
            "seccomp": not facts.filters,
            "switches that forbid user namespaces": list(host.namespaces_forbidden),
            "programs of the sandbox": len(facts.policy.sandbox.programs),
        },
        "machine": {
            "distributions": [name for name in host.distributions if name in INSTALL],
            "container": host.container,
            "limits of the container": list(host.container_limits),
            "WSL": host.wsl,
            "superuser": host.root,
        },
        "roots": [
            {
                "file system": root.file_system if root.file_system in _FILE_SYSTEMS else "other",
                "ignores case": root.ignores_case,
            }
            for root in facts.roots
        ],
        "modes": [
            {
                "mode": one.mode,
                "layers": {what: one.layers[what] for what in _LAYERS},
                "tests": {
                    what: {
                        "layer": trial.layer,
                        "held": trial.held,
                        "checks": {check.name: check.held for check in trial.checks},
                    }
                    for what, trial in one.trials.items()
                },
            }
            for one in said.modes
        ],
        "checks that layers failed": {mode: list(proof.failed) for mode, proof in facts.proofs.items()},
        "findings": [{"what": one.what, "standing": one.standing} for one in said.findings],
        "desktop": list(facts.desktop),
    }


def _version(text: str) -> str:
    """The number at its start: what follows may be a name."""
    found = re.match(r"\d+(\.\d+)*", text)
    return found[0] if found else ""


def installer(prefix: Path) -> str:
    """What installed this package in the environment `prefix`, as far as a file says so; or "unknown".

    `uv tool` and `pipx` leave a receipt in the environment, Homebrew one in the keg of the formula. The file
    INSTALLER of the package is defined by the specification "Recording installed projects".
    """
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    if prefix.name == "libexec" and (prefix.parent / "INSTALL_RECEIPT.json").is_file():
        return "Homebrew"
    try:
        name = (distribution(DISTRIBUTION).read_text("INSTALLER") or "").strip()
    except PackageNotFoundError:
        return "unknown"
    return name if name in _INSTALLERS else "unknown"


def _settings(settings: Settings) -> Iterator[tuple[str, Json]]:
    tools = Registry(discover())
    known = frozenset({*tools.entries, *tools.toolsets, "lean", "default", "all"})
    for option in (*OPTIONS, *TABLES["rules"], *TABLES["agent"]):
        yield option.name, _shown(option, getattr(settings, option.attribute), known)


def _shown(option: Option, value: Value, known: frozenset[str]) -> Json:
    """A choice, a switch, a number or names of our tools; of any other value, whether there is one."""
    if value is None or value in ((), ""):
        return "not set"
    if option.choices:
        return next(text for text in option.choices if option.read(text) == value)
    if isinstance(value, (bool, int, float)) and option.name != "port":
        return value
    if option.name in ("toolsets", "tools", "exclude-tools") and isinstance(value, tuple):
        return [word if word in known else "other" for word in value]
    if isinstance(value, tuple):
        return f"{len(value)} given"
    return "default" if value == option.default else "set"
