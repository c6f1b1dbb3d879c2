"""`doctor`: shows what each layer enforces here, with proof; what is missing, and how to install it.

`doctor --report FILE` writes one file that a user can attach to an issue: JSON in ASCII, and an allow-list
of what doctor finds: words of this program, numbers, versions, and places in our code. No text of this
machine is in it: no output, error message, name or path.
"""

import json
import logging
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import mcp_toolserver
from mcp_toolserver.app.agent_model import failures, model_options
from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.upstreams import start_upstreams
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.doctor.checks import Finding, Standing, findings, layers, next_step
from mcp_toolserver.commands.doctor.facts import CONFINED, MODES, Facts, LayerReport, examine
from mcp_toolserver.commands.doctor.host import NETWORK_FILE_SYSTEMS
from mcp_toolserver.commands.doctor.install_hints import INSTALL
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.registry import Entry, Registry, discover
from mcp_toolserver.policy.rules import Rule
from mcp_toolserver.protocol.upstreams.servers import UpstreamServers
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker, start_standalone_broker
from mcp_toolserver.runtime.sandbox.layers.landlock import missing_rights
from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_RULES
from mcp_toolserver.settings import OPTIONS, TABLES, Option, Settings, Value
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.search.glob import literal_prefix

_COLOURS: Mapping[Standing, str] = {"holds": "green", "degraded": "yellow", "missing": "red", "note": "cyan"}
_ENDINGS = (
    "Full enforcement. Everything holds.",
    "Degraded: some of it is weaker than it should be.",
    "Refused: something is missing without which this mode does not work.",
)


@dataclass(frozen=True, kw_only=True)
class ModeReport:
    mode: str
    layers: Mapping[str, str]
    trials: Mapping[str, LayerReport]
    """By subject: commands and the server process; empty if nothing confines them."""


@dataclass(frozen=True, kw_only=True)
class Report:
    status: int
    """0 full, 1 degraded, 2 refused."""
    summary: str
    mode: str
    modes: tuple[ModeReport, ...]
    findings: tuple[Finding, ...]
    next: str


def report(facts: Facts) -> Report:
    found = tuple(findings(facts))
    standings = {finding.standing for finding in found}
    return Report(
        status=2 if "missing" in standings else 1 if "degraded" in standings else 0,
        summary=layers(facts, facts.mode)["summary"],
        mode=facts.mode,
        modes=tuple(
            ModeReport(mode=mode, layers=layers(facts, mode), trials=_trials(facts, mode)) for mode in MODES
        ),
        findings=found,
        next=next_step(found),
    )


def _trials(facts: Facts, mode: str) -> Mapping[str, LayerReport]:
    if mode not in CONFINED:
        return {}
    proof = facts.proofs[mode]
    commands = LayerReport(proof.commands, proof.commands != "none", proof.checks, proof.reasons)
    return {"commands": commands, "server process": facts.servers[mode]}


def doctor(
    invocation: Invocation, broker: Broker | None, found: HostExecutables, environ: Mapping[str, str]
) -> int:
    """Print the report; unless it is verbose, without what holds. Returns its status as the exit status.

    Raises:
        SettingsError: a root is no folder.
    """
    settings, as_json, verbose = invocation.settings, invocation.json, invocation.verbose
    facts = examine(settings, found, broker=broker is not None)
    hosts = start_upstreams(settings, found, environ, start_standalone_broker)
    projects = (os.path.lexists(os.path.join(root, PROJECT_RULES)) for root in settings.root)
    if settings.deny or settings.ask or settings.allow or hosts or any(projects):
        app = build_application(settings, broker, found, held_by=None, upstreams=hosts)
        if broker is not None and app.policy.hides_anything:
            anyio.run(broker.hidden_git)
        facts = replace(
            facts,
            hidden_git=app.shared.hidden_git,
            unused_rules=unused_rules(app),
            invalid_projects=app.shared.project.problems,
            upstreams=anyio.run(_reached, app, app.upstreams) if app.upstreams else {},
        )
    said = report(facts)
    if as_json:
        print(json.dumps(asdict(said), indent=2))
    else:
        _show(said, verbose=verbose)
    return said.status


async def _reached(app: Application, upstreams: UpstreamServers) -> Mapping[str, str]:
    """What became of an attempt to connect to each upstream server, by name."""
    try:
        await upstreams.look(again=True)
        return {name: one.state for name, one in upstreams.servers.items()}
    finally:
        await app.end()
        for host in app.shared.upstreams:
            if host.broker is not None:
                host.broker.close()


def check_model(settings: Settings, *, as_json: bool) -> int:
    """Ask the models of agents for an answer, and print which give one. Returns the exit status of `doctor`.

    Raises:
        SettingsError: the settings of the model are invalid, or there are none.
    """
    options = model_options(settings)
    if options is None:
        raise SettingsError("--check-model: there is no model; configure one in [agent] of the config file")
    # The findings say it too.
    logging.getLogger("mcp_toolserver").setLevel(logging.ERROR)
    found = [
        Finding(
            "model of agents",
            "missing" if why else "holds",
            f"{options.provider}, {name}: {why or 'answers'}",
        )
        for name, why in anyio.run(failures, options).items()
    ]
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        Console().print(_findings(found))
    return 2 if any(one.standing == "missing" for one in found) else 0


def _show(said: Report, *, verbose: bool) -> None:
    """The verdict comes first."""
    console = Console()
    console.print(f"[bold]{_ENDINGS[said.status]}[/] {escape(said.summary)}\n")
    console.print(_by_mode(said.modes))
    trials = [(f"{of.mode}, {what}", trial) for of in said.modes for what, trial in of.trials.items()]
    whole = [(title, trial) for title, trial in trials if verbose or trial.reasons or not trial.held]
    for title, trial in whole:
        console.print()
        console.print(_layer_table(title, trial))
    shown = [one for one in said.findings if verbose or one.remedy or one.standing in ("degraded", "missing")]
    console.print()
    console.print(_findings(shown))
    if not verbose:
        held = sum(len(trial.checks) for _, trial in trials) - sum(len(trial.checks) for _, trial in whole)
        others = len(said.findings) - len(shown)
        console.print(f"\n{held} tests hold. doctor --verbose prints them, and {others} more findings.")
    console.print(f"[bold]Next:[/] {escape(said.next)}", soft_wrap=True, highlight=False)


def _by_mode(modes: Sequence[ModeReport]) -> Table:
    table = Table("", *(of.mode for of in modes), box=None, pad_edge=False)
    for what in modes[0].layers:
        if what != "summary":
            table.add_row(what, *(escape(of.layers[what]) for of in modes))
    return table


def _layer_table(title: str, trial: LayerReport) -> Table:
    table = Table(
        box=None, pad_edge=False, show_header=False, title=f"{title}: {trial.layer}", title_justify="left"
    )
    for check in trial.checks:
        verdict = "[green]holds[/]" if check.held else "[red]failed[/]"
        table.add_row(verdict, escape(f"{check.name}{f': {check.seen}' if check.seen else ''}"))
    for reason in trial.reasons:
        table.add_row("[yellow]but[/]" if trial.held else "[red]failed[/]", escape(reason))
    return table


def _findings(found: Sequence[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        # A path that is too long for the line continues on the next one.
        table.add_column(overflow="fold")
    for one in found:
        colour = _COLOURS[one.standing]
        remedy = f"\n→ {one.remedy}" if one.remedy else ""
        table.add_row(f"[{colour}]{one.standing}[/]", one.what, escape(one.detail + remedy))
    return table


# --- the file for an issue -------------------------------------------------------------------------------

DISTRIBUTION = "mcp-toolserver"

_ABOUT = "Texts, names and paths of this machine are left out. Read the file before you publish it."

_LAYERS = ("summary", "file tools", "commands", "searches", "network", "ending")
"""Those that are described without words of this machine; the tests show what holds the server process."""

_FILE_SYSTEMS = {*NETWORK_FILE_SYSTEMS, "btrfs", "ext4", "f2fs", "overlay", "tmpfs", "virtiofs", "xfs", "zfs"}

_INSTALLERS = ("pip", "uv", "poetry", "pdm", "conda")
"""What may be in the file INSTALLER of a package."""

Json = str | int | float | bool | list["Json"] | dict[str, "Json"]


def write_report(invocation: Invocation, found: HostExecutables, start: Callable[[], Broker | None]) -> int:
    """Examine this machine, write the report to a new file, and say where it is; `start` starts the broker.

    Returns the exit status: 0, whatever the report says.

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
    tools, options = Registry(discover()), (*OPTIONS, *TABLES["rules"], *TABLES["agent"])
    known = frozenset({*tools.entries, *tools.toolsets, "lean", "default", "all"})
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
        "settings": {one.name: _shown(one, getattr(settings, one.attribute), known) for one in options},
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


_About = Mapping[Rule, Mapping[str, Entry]]
"""By rule the tools that it is about, by name."""


def unused_rules(app: Application) -> Mapping[str, str]:
    """By rule, with its source, why it can never decide anything."""
    entries = app.registry.entries.items()
    about: _About = {
        rule: {name: entry for name, entry in entries if rule.covers(name, entry.spec.needs)}
        for rule in (*app.policy.deny, *app.policy.ask, *app.policy.allow)
    }
    reasons = {rule: _refused(app, rule, about) or _without_effect(app, rule, about) for rule in about}
    return {f"{rule.text} ({rule.place})": why for rule, why in reasons.items() if why}


def _refused(app: Application, rule: Rule, about: _About) -> str:
    """Why a deny rule before it, or any where it is none, refuses all that it is about."""
    for other in app.policy.deny:
        if other is rule:
            break
        is_whole = other.pattern in ("*", rule.pattern)
        is_partial = other.argument or other.other_roots or other.problem
        # Tools of other servers are not known here.
        if is_whole and not is_partial and about[rule] and about[rule].keys() <= about[other].keys():
            return f"the deny rule {other.text} refuses all that it is about"
    return ""


def _without_effect(app: Application, rule: Rule, about: _About) -> str:
    policy, tools, start = app.policy, about[rule].values(), literal_prefix(rule.pattern)
    is_path = all(entry.spec.path_fields and not entry.spec.url_fields for entry in tools)
    is_near = any(lies_in(root, start) or lies_in(start, root) for root in app.roots)
    if is_path and start.startswith("/") and not rule.argument and not is_near:
        return "it is about paths outside of all roots, which its tools never reach"
    levels = sorted(map(app.dispatcher.level, tools))
    if rule in policy.deny or not levels:
        return ""
    if levels[0] > policy.ceiling:
        return "its tools need more than the permission mode"
    rivals = (other for other in policy.ask if about[rule].keys() & about[other].keys())
    if levels[-1] <= policy.granted and rule in policy.allow and not any(rivals):
        return "its tools run unasked without it"
    return ""
