"""Probes one layer: a script in it tries what the layer must allow and what it must prevent.

The process outside judges the result: it compares the files, watches the other end of the connection, and
searches the output for a secret word. It believes the script only where nobody else can see.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import find_shell
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Layer, SandboxSpec
from mcp_toolserver.runtime.sandbox.selftest.fixture import Fixture, Seen

NOTES = 300
"""Characters of a failed program's output that go into a reason."""

WRITTEN = "written"
MODE = 0o755

_STATUS = ("CapEff:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The layer to try."""

    sandbox: SandboxSpec
    layer: Layer
    program: str = ""
    filtered: bool = True
    """Whether this machine has filters for system calls at all."""
    shares_session: bool = False
    """Whether it is tried in namespaces as the commands of a session share them."""
    brief: bool = False
    """Leave out what takes a program of its own to try."""

    @property
    def writes(self) -> bool:
        """Whether commands may write in the roots."""
        return self.sandbox.mode == "workspace-write"

    @property
    def isolated(self) -> bool:
        """Whether the layer has mounts, processes and a network of its own."""
        return self.layer == "bubblewrap"


Run = Callable[[SandboxSpec, Probe, str], tuple[int, str]]
"""Start a script for /bin/sh just as a command is started: the sandbox, what else is tried, the script.

It gives the exit status and the output; whatever it raises means that nothing ran."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a probe."""

    checks: tuple[Check, ...] = ()
    problem: str = ""
    """Why the layer is not good enough; empty when every check held."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A script that ran to its end."""

    probe: Probe
    fixture: Fixture
    printed: Mapping[str, str]
    """The first word of each line of its output, and the rest."""
    before: Seen
    after: Seen


def run_probe(probe: Probe, run: Run, fixture: Fixture) -> Outcome:
    """Try a layer on a fixture that no failed probe has changed."""
    before = fixture.seen()
    try:
        status, output = run(fixture.sandbox(probe.sandbox), probe, script(probe, fixture))
    except Exception as error:  # noqa: BLE001  # whatever it is, this layer holds nothing
        return Outcome(problem=_one_line(f"it could not be started: {str(error) or type(error).__name__}"))
    printed = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    # Where the script did not come to its end, what it did not print proves nothing.
    if printed.get("root") != fixture.token or "end" not in printed:
        return Outcome(problem=_one_line(f"it ended with status {status}: {output or 'no output'}"))
    ended = Ended(probe=probe, fixture=fixture, printed=printed, before=before, after=fixture.seen())
    checks = tuple(_checks(ended))
    return Outcome(checks=checks, problem="; ".join(_failure(check) for check in checks if not check.held))


def _failure(check: Check) -> str:
    return f'it does not hold that "{check.name}": {check.seen}'


def _one_line(text: str) -> str:
    return " ".join(text.split())[:NOTES]


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
    yield _check("files in the root can be read", "")
    yield from _scratch(ended)
    yield from _files(ended)
    yield from _secrets(ended)
    yield from _process(ended)
    if not ended.probe.brief:
        yield from _network_and_namespaces(ended)


def _check(name: str, seen: str) -> Check:
    """Something that holds when nothing was seen against it."""
    return Check(name=name, held=not seen, seen=seen)


def _scratch(ended: Ended) -> Iterator[Check]:
    printed = ended.printed
    read = printed.get("scratch") == WRITTEN
    yield _check("temporary files can be written", "" if read else f"not in {printed.get('place')}")
    if ended.probe.isolated:
        file = f"{printed.get('place')}/{ended.fixture.token}"
        shared = os.path.lexists(file)
        yield _check("temporary files are the command's own", f"{file} was made" if shared else "")


def _files(ended: Ended) -> Iterator[Check]:
    probe = ended.probe
    if probe.writes:
        yield _check("files in the root can be written", _unwritten(ended))
    else:
        yield _check("nothing in the root is changed", _changed(ended, "root"))
    if probe.writes and probe.isolated:
        yield _check("hooks and configuration of git are not changed", _changed(ended, "root/.git"))
    if probe.writes and not probe.isolated:
        yield _check("files outside of the root are not written", _written(ended, "outside"))
    else:
        yield _check("nothing outside of the root is changed", _changed(ended, "outside"))


def _unwritten(ended: Ended) -> str:
    if ended.after.get("root/new") == ended.before.get("root/new"):
        return "no file was made"
    return "" if ended.after["root/kept"][0] & 0o777 == MODE else "the mode of a file was not changed"


def _changed(ended: Ended, folder: str) -> str:
    """What differs at and below `folder`, in words."""
    return _different(ended, folder, slice(None))


def _written(ended: Ended, folder: str) -> str:
    """As `_changed`, of contents alone."""
    return _different(ended, folder, slice(-1, None))


def _different(ended: Ended, folder: str, part: slice) -> str:
    before, after = (
        {path: look[part] for path, look in seen.items() if f"{path}/".startswith(f"{folder}/")}
        for seen in (ended.before, ended.after)
    )
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return f"{', '.join(paths)} changed" if paths else ""


def _secrets(ended: Ended) -> Iterator[Check]:
    names = {"state": "the server's own folder cannot be read", "hidden": "hidden files cannot be read"}
    for label, name in names.items():
        read = ended.fixture.secret in ended.printed.get(label, "")
        yield _check(name, "it was read" if read else "")


def _network_and_namespaces(ended: Ended) -> Iterator[Check]:
    if not ended.probe.sandbox.network:
        listed = "it was found among those that listen" if "listener" in ended.printed else ""
        seen = "a connection came" if ended.fixture.visited() else listed
        yield _check("a socket that listens on this machine cannot be reached", seen)
    if _unshare():
        nested = ended.printed.get("nested", "not tried")
        yield _check("no user namespace can be made", "" if nested == "refused" else f"one was {nested}")


def _process(ended: Ended) -> Iterator[Check]:
    printed, probe = ended.printed, ended.probe
    if probe.isolated:
        seen = _seen_from_within(printed.get("outsider", ""))
        yield _check("processes outside cannot be seen", seen)
    powers = printed.get("CapEff:", "not shown")
    yield _check("no power of root is left", "" if powers.strip("0") == "" else f"CapEff is {powers}")
    bound = printed.get("NoNewPrivs:", "not shown")
    yield _check("no program gives new powers", "" if bound == "1" else f"NoNewPrivs is {bound}")
    if probe.filtered:
        yield _check("system calls are filtered", _unfiltered(printed))


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
