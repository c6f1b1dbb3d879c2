"""How a layer is probed: a script in it tries what the layer must allow and what it must prevent.

`common_script` is tried in every layer, and `script` in those of Linux; see `seatbelt_selftest` for macOS.

The process outside judges the result: it compares the files, watches the other end of the connection, and
searches the output for a secret word. It believes the script only where nobody else can see.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    holds_pipes: bool = True
    """Whether there is what keeps a command from named pipes outside its roots."""
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

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that did not hold; where there are none, the script did not run to its end."""
        return tuple(one.name for one in self.checks if not one.held) or ("the script runs to its end",)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A script that ran to its end."""

    probe: Probe
    fixture: Fixture
    printed: Mapping[str, str]
    """The first word of each line of its output, and the rest."""
    before: Seen
    after: Seen


def run_probe(
    probe: Probe,
    run: Run,
    fixture: Fixture,
    script: str,
    checks: Callable[[Ended], Iterable[Check]],
) -> Outcome:
    """Run `script` on a fixture that no failed probe has changed, and judge by `checks` what came of it.

    It must print `root` with the fixture's token, and `end` as its last step.
    """
    before = fixture.seen()
    try:
        status, output = run(fixture.sandbox(probe.sandbox), probe, script)
    except Exception as error:  # noqa: BLE001  # whatever it is, this layer holds nothing
        return Outcome(problem=_one_line(f"it could not be started: {str(error) or type(error).__name__}"))
    printed = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    # Where the script did not come to its end, what it did not print proves nothing.
    if printed.get("root") != fixture.token or "end" not in printed:
        return Outcome(problem=_one_line(f"it ended with status {status}: {output or 'no output'}"))
    ended = Ended(probe=probe, fixture=fixture, printed=printed, before=before, after=fixture.seen())
    return outcome(checks(ended))


def outcome(checks: Iterable[Check]) -> Outcome:
    """The result of a probe whose script ran to its end."""
    made = tuple(checks)
    failures = (f'it does not hold that "{one.name}": {one.seen}' for one in made if not one.held)
    return Outcome(checks=made, problem="; ".join(failures))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:NOTES]


# --- what is tried in any layer --------------------------------------------------------------------------


def common_script(fixture: Fixture, temporary: str) -> tuple[str, ...]:
    """What is tried first. `temporary` is the folder for temporary files if the command is told none."""
    root, outside, state, hidden = quoted(fixture)
    place = f'"${{TMPDIR:-{temporary}}}"'
    scratch = f"{place}/{fixture.token}"
    return (
        "exec 2>/dev/null",
        reading(f"{root}/kept", "root"),
        f"echo {WRITTEN} >{scratch} && {reading(scratch, 'scratch')}",
        f"echo place {place}",
        f"echo {WRITTEN} >{root}/new",
        f"echo {WRITTEN} >{outside}/new",
        f"echo {WRITTEN} >>{outside}/kept",
        f"echo {WRITTEN} >{outside}/pipe",
        f"echo {WRITTEN} >>{root}/.git/config",
        f"echo {WRITTEN} >>{root}/.git/hooks/pre-commit",
        f"echo {WRITTEN} >{root}/.git/hooks/new",
        reading(f"{state}/secret", "state"),
        reading(hidden, "hidden"),
    )


def quoted(fixture: Fixture) -> Iterator[str]:
    """The root, the folder outside of it, the state folder and the hidden file, as a shell reads them."""
    return (shlex.quote(fixture.at(name)) for name in ("root", "outside", "state", "hidden"))


def reading(path: str, label: str) -> str:
    """What prints the first line of a file after `label`."""
    return f'read -r line <{path} && echo "{label} $line"'


def common_checks(ended: Ended) -> Iterator[Check]:
    """What came of `common_script`, in files."""
    probe, printed = ended.probe, ended.printed
    yield check("files in the root can be read", "")
    read = printed.get("scratch") == WRITTEN
    yield check("temporary files can be written", "" if read else f"not in {printed.get('place')}")
    if probe.isolated:
        file = f"{printed.get('place')}/{ended.fixture.token}"
        shared = os.path.lexists(file)
        yield check("temporary files are the command's own", f"{file} was made" if shared else "")
    if probe.writes:
        yield check("files in the root can be written", _unwritten(ended))
    else:
        yield check("nothing in the root is changed", changed(ended, "root"))
    if probe.layer == "seatbelt" or (probe.writes and probe.isolated):
        yield check("hooks and configuration of git are not changed", changed(ended, "root/.git"))
    if probe.writes and probe.layer == "landlock":
        yield check("files outside of the root are not written", _written(ended, "outside"))
    else:
        yield check("nothing outside of the root is changed", changed(ended, "outside"))
    if probe.holds_pipes:
        piped = "it was" if ended.fixture.piped() else ""
        yield check("a named pipe outside of the root is not written", piped)
    yield from unread(ended, _SECRETS)


_SECRETS = {"state": "the server's own folder cannot be read", "hidden": "hidden files cannot be read"}


def unread(ended: Ended, names: Mapping[str, str]) -> Iterator[Check]:
    """That the secret was not printed after these labels, each with the name of its check."""
    for label, name in names.items():
        read = ended.fixture.secret in ended.printed.get(label, "")
        yield check(name, "it was read" if read else "")


def check(name: str, seen: str) -> Check:
    """Something that holds when nothing was seen against it."""
    return Check(name=name, held=not seen, seen=seen)


def _unwritten(ended: Ended) -> str:
    if ended.after.get("root/new") == ended.before.get("root/new"):
        return "no file was made"
    return "" if ended.after["root/kept"][0] & 0o777 == MODE else "the mode of a file was not changed"


def changed(ended: Ended, folder: str) -> str:
    """What differs at and below `folder`, in words."""
    return _different(ended, folder, slice(None))


def _written(ended: Ended, folder: str) -> str:
    """As `changed`, of contents alone."""
    return _different(ended, folder, slice(-1, None))


def _different(ended: Ended, folder: str, part: slice) -> str:
    before, after = (
        {path: look[part] for path, look in seen.items() if f"{path}/".startswith(f"{folder}/")}
        for seen in (ended.before, ended.after)
    )
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return f"{', '.join(paths)} changed" if paths else ""


# --- what is tried in a layer of Linux -------------------------------------------------------------------

_STATUS = ("CapEff:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:")


def probe_linux(probe: Probe, run: Run, fixture: Fixture) -> Outcome:
    """Try a layer of Linux on a fixture that no failed probe has changed."""
    return run_probe(probe, run, fixture, script(probe, fixture), _checks)


def script(probe: Probe, fixture: Fixture) -> str:
    """What is run. It starts as few programs as it can: each costs as much as all the rest."""
    lines = (
        *common_script(fixture, "/tmp"),  # noqa: S108  # the command's own
        'while read -r name value; do echo "$name $value"; done </proc/self/status',
        reading(f"/proc/{os.getpid()}/stat", "outsider"),
        *(() if probe.brief else _with_programs(probe, fixture)),
        'echo "end reached"',
    )
    return "\n".join(lines)


def _with_programs(probe: Probe, fixture: Fixture) -> Iterator[str]:
    root, outside, *_ = quoted(fixture)
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


def _checks(ended: Ended) -> Iterator[Check]:
    yield from common_checks(ended)
    yield from _process(ended)
    if not ended.probe.brief:
        yield from _network_and_namespaces(ended)


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
