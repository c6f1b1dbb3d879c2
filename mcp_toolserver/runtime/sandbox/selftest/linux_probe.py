"""Probes a layer of Linux: what its script tries, and what must have come of it."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import find_shell
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH
from mcp_toolserver.runtime.sandbox.layers.spec import Check
from mcp_toolserver.runtime.sandbox.selftest.fixture import Fixture
from mcp_toolserver.runtime.sandbox.selftest.probe import (
    MODE,
    WRITTEN,
    Ended,
    Outcome,
    Probe,
    Run,
    changed,
    check,
    outcome,
    secrets,
    try_script,
    unwritten,
    written,
)

_STATUS = ("CapEff:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:")


def run_probe(probe: Probe, run: Run, fixture: Fixture) -> Outcome:
    """Try a layer on a fixture that no failed probe has changed."""
    ended = try_script(probe, run, fixture, script(probe, fixture))
    return Outcome(problem=ended) if isinstance(ended, str) else outcome(_checks(ended))


# --- what is tried ---------------------------------------------------------------------------------------


def script(probe: Probe, fixture: Fixture) -> str:
    """What is run. It starts as few programs as it can: each costs as much as all the rest."""
    names = ("root", "outside", "state", "hidden")
    root, outside, state, hidden = (shlex.quote(fixture.at(name)) for name in names)
    scratch = f'"${{TMPDIR:-/tmp}}/{fixture.token}"'
    lines = (
        "exec 2>/dev/null",
        f'read -r line <{root}/kept && echo "root $line"',
        f'echo {WRITTEN} >{scratch} && read -r line <{scratch} && echo "scratch $line"',
        'echo "place ${TMPDIR:-/tmp}"',
        f"echo {WRITTEN} >{root}/new",
        f"echo {WRITTEN} >{outside}/new",
        f"echo {WRITTEN} >>{outside}/kept",
        f"echo {WRITTEN} >{outside}/pipe",
        f"echo {WRITTEN} >>{root}/.git/config",
        f"echo {WRITTEN} >>{root}/.git/hooks/pre-commit",
        f"echo {WRITTEN} >{root}/.git/hooks/new",
        f'read -r line <{state}/secret && echo "state $line"',
        f'read -r line <{hidden} && echo "hidden $line"',
        'while read -r name value; do echo "$name $value"; done </proc/self/status',
        f'read -r line </proc/{os.getpid()}/stat && echo "outsider $line"',
        *(() if probe.brief else _with_programs(probe, fixture, root, outside)),
        'echo "end reached"',
    )
    return "\n".join(lines)


def _with_programs(probe: Probe, fixture: Fixture, root: str, outside: str) -> Iterator[str]:
    yield f"chmod {MODE:o} {root}/kept {outside}/kept"
    yield f"mv {root}/.git {root}/moved"
    if not probe.sandbox.network and fixture.port:
        yield from _reach_out(probe, fixture.port)
    if program := _unshare():
        yield f"{program} --user /bin/sh -c 'echo nested made' || echo nested refused"


def _reach_out(probe: Probe, port: int) -> Iterator[str]:
    """Look for the listener, and connect to it."""
    if probe.isolated:
        found = f'case $here in *:{port:04X}) echo "listener $here";; esac'
        yield f"while read -r _ here _; do {found}; done </proc/net/tcp"
    shell = find_shell(DEFAULT_PATH)
    if "--norc" in shell:
        yield shlex.join((*shell, f"exec 3<>/dev/tcp/127.0.0.1/{port}"))
    else:
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        yield shlex.join((sys.executable, "-I", "-S", "-c", connect))


def _unshare() -> str | None:
    return next((file for file in ("/usr/bin/unshare", "/bin/unshare") if os.access(file, os.X_OK)), None)


# --- what came of it -------------------------------------------------------------------------------------


def _checks(ended: Ended) -> Iterator[Check]:
    yield check("files in the root can be read", "")
    yield from _scratch(ended)
    yield from _files(ended)
    yield from secrets(ended)
    yield from _process(ended)
    if not ended.probe.brief:
        yield from _network_and_namespaces(ended)


def _scratch(ended: Ended) -> Iterator[Check]:
    printed = ended.printed
    read = printed.get("scratch") == WRITTEN
    yield check("temporary files can be written", "" if read else f"not in {printed.get('place')}")
    if ended.probe.isolated:
        file = f"{printed.get('place')}/{ended.fixture.token}"
        shared = os.path.lexists(file)
        yield check("temporary files are the command's own", f"{file} was made" if shared else "")


def _files(ended: Ended) -> Iterator[Check]:
    probe = ended.probe
    if probe.writes:
        yield check("files in the root can be written", unwritten(ended))
    else:
        yield check("nothing in the root is changed", changed(ended, "root"))
    if probe.writes and probe.isolated:
        yield check("hooks and configuration of git are not changed", changed(ended, "root/.git"))
    if probe.writes and not probe.isolated:
        yield check("files outside of the root are not written", written(ended, "outside"))
    else:
        yield check("nothing outside of the root is changed", changed(ended, "outside"))
    if probe.holds_pipes:
        piped = "it was" if ended.fixture.piped() else ""
        yield check("a named pipe outside of the root is not written", piped)


def _network_and_namespaces(ended: Ended) -> Iterator[Check]:
    if not ended.probe.sandbox.network:
        listed = "it was found among those that listen" if "listener" in ended.printed else ""
        seen = "a connection came" if ended.fixture.visited() else listed
        yield check("a socket that listens on this machine cannot be reached", seen)
    if _unshare():
        nested = ended.printed.get("nested", "not tried")
        yield check("no user namespace can be made", "" if nested == "refused" else f"one was {nested}")


def _process(ended: Ended) -> Iterator[Check]:
    printed, probe = ended.printed, ended.probe
    if probe.isolated:
        seen = _seen_from_within(printed.get("outsider", ""))
        yield check("processes outside cannot be seen", seen)
    powers = printed.get("CapEff:", "not shown")
    yield check("no power of root is left", "" if powers.strip("0") == "" else f"CapEff is {powers}")
    bound = printed.get("NoNewPrivs:", "not shown")
    yield check("no program gives new powers", "" if bound == "1" else f"NoNewPrivs is {bound}")
    if probe.filtered:
        yield check("system calls are filtered", _unfiltered(printed))


def _seen_from_within(line: str) -> str:
    """`line` is of the process that has our number within; it is ours when it began when we did."""
    own = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    return f"process {os.getpid()} was seen" if line and _name_and_start(line) == _name_and_start(own) else ""


def _name_and_start(stat: str) -> tuple[str, str]:
    """The name of a process and when it started. The name may hold anything, `)` too."""
    name, _, rest = stat.rpartition(")")
    return name.partition("(")[2], rest.split()[19]


def _unfiltered(printed: Mapping[str, str]) -> str:
    """This process may be filtered itself, so the command must be once more."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    own = dict(line.split(None, 1) for line in lines if line.startswith(_STATUS[2:]))
    label = "Seccomp_filters:"
    if label in own and printed.get(label, "").isdigit():
        return "" if int(printed[label]) > int(own[label]) else "no filter was added"
    return "" if printed.get("Seccomp:") == "2" else f"Seccomp is {printed.get('Seccomp:', 'not shown')}"
