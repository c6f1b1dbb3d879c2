"""`doctor`: shows what each layer enforces here, with proof; what is missing, and how to install it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mcp_toolserver.app.policy import build_policy, hide_from_commands
from mcp_toolserver.commands.doctor.checks import Finding, Standing, findings, layers, next_step
from mcp_toolserver.commands.doctor.facts import CONFINED, MODES, Facts, examine
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.layers.spec import Check
from mcp_toolserver.settings import Settings

_COLOURS: Mapping[Standing, str] = {"holds": "green", "degraded": "yellow", "missing": "red", "note": "cyan"}
_ENDINGS = (
    "Full enforcement. Everything holds.",
    "Degraded: some of it is weaker than it should be.",
    "Refused: something is missing without which this mode does not work.",
)


@dataclass(frozen=True)
class LayerReport:
    """The tests of one layer in one mode."""

    layer: str
    held: bool
    checks: tuple[Check, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ModeReport:
    """One mode."""

    mode: str
    layers: Mapping[str, str]
    trials: Mapping[str, LayerReport]
    """By subject: commands and the server process; empty if nothing confines them."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that the doctor says."""

    status: int
    """0 full, 1 degraded, 2 refused."""
    summary: str
    mode: str
    modes: tuple[ModeReport, ...]
    findings: tuple[Finding, ...]
    next: str
    """What to do now, in one line."""


def report(facts: Facts) -> Report:
    """Judge the facts."""
    found = tuple(findings(facts))
    standings = {finding.standing for finding in found}
    return Report(
        status=2 if "missing" in standings else 1 if "degraded" in standings else 0,
        summary=layers(facts, facts.mode)["summary"],
        mode=facts.mode,
        modes=tuple(
            ModeReport(mode=mode, layers=layers(facts, mode), trials=dict(_layer_reports(facts, mode)))
            for mode in MODES
        ),
        findings=found,
        next=next_step(found),
    )


def _layer_reports(facts: Facts, mode: str) -> Iterator[tuple[str, LayerReport]]:
    if mode not in CONFINED:
        return
    proof, tried = facts.proofs[mode], facts.servers[mode]
    yield "commands", LayerReport(proof.commands, proof.commands != "none", proof.checks, proof.reasons)
    problem = (tried.problem,) if tried.problem else ()
    layer = "seatbelt" if tried.layer == "seatbelt" else "landlock" if tried.layer else "none"
    yield "server process", LayerReport(layer, tried.holds, tried.checks, problem)


def doctor(
    settings: Settings, broker: Broker | None, found: HostExecutables, *, as_json: bool, verbose: bool
) -> int:
    """Print the report; unless `verbose`, without what holds.

    Returns:
        The exit status: 0 when all holds, 1 when something is degraded, 2 when refused.

    Raises:
        SettingsError: a root is no folder.
    """
    facts = examine(settings, found, broker=broker is not None)
    if broker is not None and facts.hiding_rules:
        policy = build_policy(settings, Registry(discover()))
        hidden_git = hide_from_commands(settings, policy, broker, found.git)
        anyio.run(broker.hidden_git)
        facts = replace(facts, hidden_git=hidden_git)
    said = report(facts)
    if as_json:
        print(json.dumps(asdict(said), indent=2))
    else:
        _show(said, verbose=verbose)
    return said.status


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
