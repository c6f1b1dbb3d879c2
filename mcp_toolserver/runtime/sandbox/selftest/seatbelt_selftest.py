"""The self-test on macOS: tries Seatbelt with scripts, before any command may run.

It fails closed, as the one for Linux does: if one probe fails, the sandbox is not used, and the reasons name
the probe and what was seen. The process outside judges by the files, by who connected, and by words that only
a reader of a secret can print. It believes the script only where nobody else can see.
"""

import contextlib
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mcp_toolserver.runtime.sandbox.broker.policy import READ_ONLY, UNCONFINED, Helper, SandboxPlan
from mcp_toolserver.runtime.sandbox.layers import seatbelt
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.protected.names import is_protected
from mcp_toolserver.runtime.sandbox.selftest.fixture import Fixture, make_fixture
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
)
from mcp_toolserver.runtime.sandbox.selftest.seatbelt_programs import CALLS

__all__ = ["Run", "prove"]

HELPER_SECONDS = 20
"""How long the script of a helper may take."""

_JOB = "mcp-toolserver-selftest"
_EVENT = 'tell application "System Events" to get name'
_OPEN = "(version 1)(allow default)"


def prove(sandbox: SandboxSpec, run: Run) -> Proof:
    """Try Seatbelt in the mode of `sandbox`, with the first of its programs.

    Nothing is raised: where the proof itself goes wrong, no command runs.
    """
    if sandbox.mode == UNCONFINED:
        return Proof(
            commands="none", helpers="none", reasons=(f"commands run without a sandbox in {UNCONFINED}",)
        )
    if not sandbox.programs:
        return Proof(
            commands="none", helpers="none", reasons=(f"Seatbelt: {seatbelt.SANDBOX_EXEC} is not there",)
        )
    try:
        return _prove(sandbox, run, sandbox.programs[0])
    except Exception as error:  # noqa: BLE001  # a server without commands is better than none
        why = f"the sandbox could not be tested: {str(error) or type(error).__name__}"
        return Proof(commands="none", helpers="none", reasons=(why,))


def _prove(sandbox: SandboxSpec, run: Run, program: str) -> Proof:
    reading = replace(sandbox, mode=READ_ONLY, network=False)
    helpers = _try(Probe(sandbox=reading, layer="seatbelt", program=program), run)
    if helpers.problem:
        why = f"Seatbelt around what only reads: {helpers.problem}"
        return Proof(commands="none", helpers="none", program=program, reasons=(why,), failed=helpers.failed)
    commands = helpers
    if reading != sandbox:
        commands = _try(Probe(sandbox=sandbox, layer="seatbelt", program=program), run)
    if commands.problem:
        why = f"Seatbelt around commands: {commands.problem}"
        return Proof(
            commands="none", helpers="seatbelt", program=program, reasons=(why,), failed=commands.failed
        )
    return Proof(commands="seatbelt", helpers="seatbelt", program=program, checks=commands.checks)


def _try(probe: Probe, run: Run) -> Outcome:
    """Try commands, and helpers that read or write as much as the mode allows."""
    with _mac_fixture(probe.sandbox.state) as fixture:
        ended = try_script(probe, run, fixture, script(probe, fixture))
        _remove_job()
        if isinstance(ended, str):
            return Outcome(problem=ended)
        made = outcome(_checks(ended, fixture))
    if made.problem:
        return made
    # What commands left would prove nothing about helpers.
    with _mac_fixture(probe.sandbox.state) as fixture:
        helper = _git_that_commits(probe, fixture) if probe.writes else _search(probe, fixture)
        return outcome((*made.checks, *helper))


# --- files to try it on ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MacFixture(Fixture):
    """The files of the fixture, and what else is tried on macOS."""

    local: socket.socket | None
    """Listens at a path outside of the root; None where no such socket can be made."""

    def sandbox(self, sandbox: SandboxSpec) -> SandboxSpec:
        """`sandbox` with the paths of this fixture."""
        hidden = (self.at("hidden"), self.at("root/closed/secret"))
        return replace(super().sandbox(sandbox), hidden=hidden)

    @property
    def local_path(self) -> str:
        """Where the local socket listens, or nothing."""
        return self.at("outside-socket") if self.local else ""

    def local_visited(self) -> bool:
        """Whether a client connected to the local socket."""
        return replace(self, listener=self.local).visited()


@contextmanager
def _mac_fixture(state: str) -> Generator[MacFixture]:
    with make_fixture(state) as plain, contextlib.ExitStack() as opened:
        local = _local_listener(plain.at("outside-socket"))
        if local:
            opened.enter_context(local)
        for folder in ("root/closed", "root/sub"):
            os.mkdir(plain.at(folder), 0o700)
        secret = os.open(
            plain.at("root/closed/secret"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        os.write(secret, f"{plain.secret}\n".encode())
        os.close(secret)
        yield MacFixture(
            base=plain.base,
            token=plain.token,
            secret=plain.secret,
            listener=plain.listener,
            pipe=plain.pipe,
            local=local,
        )


def _local_listener(path: str) -> socket.socket | None:
    """None where the path is too long for a socket, or no socket can be made."""
    with contextlib.ExitStack() as undo:
        try:
            listener = undo.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(path)
            listener.listen()
        except OSError:
            return None
        listener.setblocking(False)
        undo.pop_all()
        return listener


# --- commands --------------------------------------------------------------------------------------------


def script(probe: Probe, fixture: MacFixture) -> str:
    """What is run."""
    names = ("root", "outside", "state", "hidden")
    root, outside, state, hidden = (shlex.quote(fixture.at(name)) for name in names)
    scratch = f'"${{TMPDIR:-/nowhere}}/{fixture.token}"'
    made = f'"${{TMPDIR:-/nowhere}}/made-{fixture.token}"'
    lines = (
        "exec 2>/dev/null",
        f'read -r line <{root}/kept && echo "root $line"',
        f'echo {WRITTEN} >{scratch} && read -r line <{scratch} && echo "scratch $line"',
        'echo "place ${TMPDIR:-/nowhere}"',
        '/bin/sh -c "exit 7"; echo "program $?"',
        # Files outside of the root.
        f"echo {WRITTEN} >{outside}/new",
        f"echo {WRITTEN} >>{outside}/kept",
        f"ln -s {outside} {root}/way && echo {WRITTEN} >{root}/way/through-a-link",
        f"ln {outside}/kept {root}/second && echo {WRITTEN} >>{root}/second",
        f"chmod {MODE:o} {outside}/kept",
        f"mv {outside}/kept {outside}/moved",
        # Files in the root, and protected names.
        f"echo {WRITTEN} >{root}/new",
        f"chmod {MODE:o} {root}/kept",
        f"echo {WRITTEN} >>{root}/.git/config",
        f"echo {WRITTEN} >>{root}/.git/hooks/pre-commit",
        f"echo {WRITTEN} >{root}/.git/hooks/new",
        f"echo {WRITTEN} >>{root}/.GIT/CONFIG",
        f"echo {WRITTEN} >{root}/.envrc; echo {WRITTEN} >{root}/sub/.Mcp.Json; mkdir {root}/sub/.VSCODE",
        f"ln {root}/.git/config {root}/third && echo {WRITTEN} >>{root}/third",
        f"mkdir {made} {made}/.git && mv {made} {root}/prepared",
        f"mkdir -p {made} && mv {made} {root}/sub/.husky",
        f"mv {root}/.git/hooks {root}/.git/away",
        f"mv {root}/.git {root}/moved",
        # Secrets, under each name that a file has.
        f'read -r line <{state}/secret && echo "state $line"',
        f'for name in {state}/*; do echo "listed $name"; done',
        f'read -r line <{hidden} && echo "hidden $line"',
        *_second_names(fixture),
        f'mv {root}/closed {root}/opened; read -r line <{root}/opened/secret && echo "moved $line"',
        f'ln {hidden} {root}/fourth && read -r line <{root}/fourth && echo "linked $line"',
        # Processes.
        f'kill -0 {os.getpid()} && echo "signal worked"',
        f'kill -URG {os.getpid()} && echo "signal worked"',
        'sleep 60 & kill $! && echo "own worked"',
        'if [ -u /bin/ps ]; then /bin/ps >/dev/null && echo "setuid worked"; fi',
        *_ways_out(probe, fixture),
        *_calls(fixture),
        'echo "end reached"',
    )
    return "\n".join(lines)


def _second_names(fixture: MacFixture) -> Iterator[str]:
    hidden = fixture.at("hidden")
    look = os.stat(hidden)
    folder, name = os.path.split(hidden)
    others = {
        "case": os.path.join(folder, name.upper()),
        "data-volume": f"/System/Volumes/Data{hidden}",
        "inode": f"/.vol/{look.st_dev}/{look.st_ino}",
        "folder-case": os.path.join(folder.upper(), name),
    }
    for label, path in others.items():
        yield f'read -r line <{shlex.quote(path)} && echo "{label} $line"'


def _ways_out(probe: Probe, fixture: MacFixture) -> Iterator[str]:
    """What would act outside of the sandbox, if its program is there."""
    inner = f"echo {WRITTEN} >{shlex.quote(fixture.at('outside/nested'))}"
    yield shlex.join((probe.program, "-p", _OPEN, "/bin/sh", "-c", inner))
    start = shlex.join(("/bin/launchctl", "submit", "-l", _JOB, "--", "/usr/bin/true"))
    yield f'[ -x /bin/launchctl ] && {start} && echo "launchd worked"'
    # One that waits for an answer is ended.
    event = shlex.join(("/usr/bin/osascript", "-e", _EVENT))
    yield "if [ -x /usr/bin/osascript ]; then"
    yield f"  {event} >/dev/null & asking=$!; (sleep 3; kill $asking) & limit=$!"
    yield '  wait $asking && echo "event worked"; kill $limit'
    yield "fi"


def _calls(fixture: MacFixture) -> Iterator[str]:
    port = 0 if fixture.listener is None else fixture.port
    values = (fixture.at("root"), fixture.at("root/closed"), str(port), fixture.local_path, str(os.getpid()))
    yield shlex.join((sys.executable, "-I", "-S", "-c", CALLS, *values, fixture.token))


def _remove_job() -> None:
    """Take back what a command could submit to launchd, if the sandbox let it."""
    if os.access("/bin/launchctl", os.X_OK):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ("/bin/launchctl", "remove", _JOB), check=False, capture_output=True, timeout=HELPER_SECONDS
            )


def _checks(ended: Ended, fixture: MacFixture) -> Iterator[Check]:
    printed, probe = ended.printed, ended.probe
    yield check("files in the root can be read", "")
    read = printed.get("scratch") == WRITTEN
    yield check("temporary files can be written", "" if read else f"not in {printed.get('place')}")
    yield check("programs run", "" if printed.get("program") == "7" else "a shell did not")
    yield check("a command ends its own programs", "" if "own" in printed else "a signal was refused")
    tried = "calls" in printed
    yield check(
        "Python runs, which tries the rest", "" if tried else f"{sys.executable} did not run to its end"
    )
    if probe.writes:
        yield check("files in the root can be written", unwritten(ended))
    else:
        yield check("nothing in the root is changed", changed(ended, "root"))
    yield check("hooks and configuration of git are not changed", changed(ended, "root/.git"))
    yield check("no protected name is made, moved in or moved away", _protected_changes(ended))
    yield check("nothing outside of the root is changed", changed(ended, "outside"))
    yield from secrets(ended)
    yield from _more_secrets(ended)
    yield from _outside(ended, fixture)


def _protected_changes(ended: Ended) -> str:
    differing = ended.before.keys() ^ ended.after.keys()
    names = sorted(path for path in differing if is_protected(path, git_writable=False))
    return f"{', '.join(names)} appeared or disappeared" if names else ""


def _more_secrets(ended: Ended) -> Iterator[Check]:
    names = {
        "case": "hidden files cannot be read under a name in another case",
        "folder-case": "hidden files cannot be read through a folder in another case",
        "data-volume": "hidden files cannot be read in /System/Volumes/Data",
        "inode": "hidden files cannot be read by number in /.vol",
        "moved": "hidden files cannot be read when their folder is moved",
        "linked": "hidden files cannot be read through a hard link",
    }
    for label, name in names.items():
        read = ended.fixture.secret in ended.printed.get(label, "")
        yield check(name, "one was read" if read else "")
    listed = ended.printed.get("listed", "").endswith("/secret")
    yield check("the server's own folder cannot be listed", "it was listed" if listed else "")
    moved = "root/closed/secret" not in ended.after
    yield check("hidden files stay in their place", "one was moved" if moved else "")
    cloned = "root/cloned/secret" in ended.after
    yield check("a folder with hidden files cannot be cloned", "one was cloned" if cloned else "")


def _outside(ended: Ended, fixture: MacFixture) -> Iterator[Check]:
    printed = ended.printed
    if not ended.probe.sandbox.network:
        reached = "a connection came" if fixture.visited() or "tcp" in printed else ""
        yield check("a socket that listens on this machine cannot be reached", reached)
    if fixture.local is not None:
        reached = "a connection came" if fixture.local_visited() or "local" in printed else ""
        yield check("a local socket outside of the root cannot be reached", reached)
    found = sorted(label.removeprefix("service-") for label in printed if label.startswith("service-"))
    yield check("services of the system cannot be reached", f"{', '.join(found)} could" if found else "")
    names = {
        "signal": "processes outside get no signal",
        "others": "processes outside cannot be looked at",
        "environment": "the environment of processes outside cannot be read",
        "shared": "no memory is shared by name",
        "setuid": "setuid programs do not run",
        "launchd": "launchd takes no job",
        "event": "no application takes an Apple event",
    }
    for label, name in names.items():
        yield check(name, "it worked" if label in printed else "")


# --- helpers ---------------------------------------------------------------------------------------------


def _search(probe: Probe, fixture: MacFixture) -> Iterator[Check]:
    """A helper with reach "folder": it reads the root and nothing else."""
    root, outside, state = (shlex.quote(fixture.at(name)) for name in ("root", "outside", "state"))
    lines = (
        "exec 2>/dev/null",
        f'read -r line <{root}/kept && echo "root $line"',
        f'read -r line <{outside}/kept && echo "outside $line"',
        f'read -r line <{state}/secret && echo "state $line"',
        'read -r line </private/etc/passwd && echo "system $line"',
        f"echo {WRITTEN} >{root}/new; echo {WRITTEN} >{outside}/new",
        '/bin/ls / >/dev/null && echo "program ran"',
        'echo "end reached"',
    )
    before = fixture.seen()
    printed = _run_helper(probe, fixture, Helper(argv=("/bin/sh",)), lines)
    read = printed.get("root") == fixture.token and "end" in printed
    yield check("a search reads its folder", "" if read else f"it printed {sorted(printed)}")
    others = [label for label in ("outside", "state", "system") if label in printed]
    yield check("a search reads nothing else", f"it read {', '.join(others)}" if others else "")
    yield check("a search writes nothing", "" if fixture.seen() == before else "a file changed")
    yield check("a search starts no other program", "one ran" if "program" in printed else "")


def _git_that_commits(probe: Probe, fixture: MacFixture) -> Iterator[Check]:
    """A helper that writes in `.git` only."""
    root, outside = shlex.quote(fixture.at("root")), shlex.quote(fixture.at("outside"))
    lines = (
        "exec 2>/dev/null",
        f"echo {WRITTEN} >{root}/.git/index",
        f"echo {WRITTEN} >>{root}/.git/config; echo {WRITTEN} >>{root}/.git/hooks/pre-commit",
        f"mv {root}/.git/hooks {root}/.git/away",
        f"echo {WRITTEN} >{root}/new; echo {WRITTEN} >{outside}/new",
        'echo "end reached"',
    )
    before = fixture.seen()
    helper = Helper(argv=("/bin/sh",), reach="system", writes=".git")
    printed = _run_helper(probe, fixture, helper, lines)
    after = fixture.seen()
    written = "root/.git/index" in after and "end" in printed
    yield check("git of the server writes in .git", "" if written else f"it printed {sorted(printed)}")
    # Making a file changes the times of its folder.
    own = ("root/.git", "root/.git/index")
    other = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    other = [path for path in other if path not in own]
    yield check("git of the server writes nothing else", f"{', '.join(other)} changed" if other else "")


def _run_helper(probe: Probe, fixture: MacFixture, helper: Helper, lines: tuple[str, ...]) -> dict[str, str]:
    """What a helper printed: the first word of each line, and the rest; nothing if it did not run."""
    sandbox = replace(fixture.sandbox(probe.sandbox), mode=READ_ONLY, network=False)
    plan = SandboxPlan(
        layer="seatbelt",
        sandbox=sandbox,
        program=probe.program,
        helper=helper,
        writes=(fixture.at("root/.git"),) if helper.writes else (),
    )
    argv = (*helper.argv, "-c", "\n".join(lines))
    temporary, cwd = fixture.at("temporary"), fixture.at("root")
    words = seatbelt.arguments(plan, argv, temporary=temporary, cwd=cwd)
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={"PATH": DEFAULT_PATH},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            timeout=HELPER_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
