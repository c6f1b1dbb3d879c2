"""The self-test on macOS: tries Seatbelt with scripts, before any command may run.

It fails closed, as the one for Linux does: if one probe fails, the sandbox is not used, and the reasons name
the probe and what was seen. The process outside judges by the files, by who connected, and by words that only
a reader of a secret can print. It believes the script only where nobody else can see.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.sandbox.broker import temp_folder
from mcp_toolserver.runtime.sandbox.broker.policy import READ_ONLY, BrokerPolicy, Helper, SandboxPlan
from mcp_toolserver.runtime.sandbox.layers import seatbelt
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.protected.names import is_protected
from mcp_toolserver.runtime.sandbox.selftest.probe import (
    MODE,
    WRITTEN,
    Ended,
    Fixture,
    Outcome,
    Probe,
    check,
    common_checks,
    make_fixture,
    quoted,
    reading,
    run_probe,
    unread,
    words_of,
)

PROBE_SECONDS = 20.0
"""How long a script may take."""

_JOB = "mcp-toolserver-selftest"
_EVENT = 'tell application "System Events" to get name'
_OPEN = "(version 1)(allow default)"


def prove(broker_policy: BrokerPolicy) -> Proof:
    """Try Seatbelt in the mode of `broker_policy`, with the first of its programs.

    Raises:
        OSError: it cannot be tried.
    """
    sandbox = broker_policy.sandbox
    program = sandbox.programs[0]
    unproven = Proof(program=program)
    only_reading = replace(sandbox, mode=READ_ONLY, network=False)
    helpers = _try(Probe(sandbox=only_reading, layer="seatbelt", program=program), broker_policy)
    if helpers.problem:
        why = f"Seatbelt around what only reads: {helpers.problem}"
        return replace(unproven, reasons=(why,), failed=helpers.failed)
    commands = helpers
    if only_reading != sandbox:
        commands = _try(Probe(sandbox=sandbox, layer="seatbelt", program=program), broker_policy)
    if commands.problem:
        why = f"Seatbelt around commands: {commands.problem}"
        return replace(unproven, helpers="seatbelt", reasons=(why,), failed=commands.failed)
    return replace(unproven, commands="seatbelt", helpers="seatbelt", checks=commands.checks)


def _try(probe: Probe, broker_policy: BrokerPolicy) -> Outcome:
    """Try commands, and helpers that read or write as much as the mode allows."""

    def run(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
        temporary = temp_folder.of_command(broker_policy.scratch)
        try:
            plan = SandboxPlan(layer="seatbelt", sandbox=sandbox, program=probe.program)
            return _run(plan, (*broker_policy.shell, script), temporary, broker_policy.environment)
        finally:
            temp_folder.remove(temporary)

    made = run_probe(probe, run, _attempts, _checks, hides_in_root=True)
    _remove_job()
    if made.problem:
        return made
    # What commands left would prove nothing about helpers.
    with make_fixture(probe.sandbox.state, hides_in_root=True) as fixture:
        helper = _git_that_commits(probe, fixture) if probe.writes else _search(probe, fixture)
        return Outcome(checks=(*made.checks, *helper))


def _run(
    plan: SandboxPlan, argv: Sequence[str], temporary: str, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run a program in the first root of `plan`; its exit status and what it printed.

    Raises:
        OSError: it was not run, or not to its end.
    """
    cwd, file = plan.sandbox.roots[0], anonymous_file("output")
    words = seatbelt.arguments(plan, argv, temporary=temporary, cwd=cwd)
    with os.fdopen(file, "w+b") as output:
        started = subprocess.Popen(
            words,
            cwd=cwd,
            env={**environment, "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = started.wait(PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            raise OSError("the script of the self-test did not run to its end") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


# --- commands --------------------------------------------------------------------------------------------


def _attempts(probe: Probe, fixture: Fixture) -> tuple[str, ...]:
    root, outside, state, hidden = quoted(fixture)
    made = f'"${{TMPDIR:-/nowhere}}/made-{fixture.token}"'
    return (
        '/bin/sh -c "exit 7"; echo "program $?"',
        # Files outside of the root.
        f"ln -s {outside} {root}/way && echo {WRITTEN} >{root}/way/through-a-link",
        f"ln {outside}/kept {root}/second && echo {WRITTEN} >>{root}/second",
        f"chmod {MODE:o} {outside}/kept",
        f"mv {outside}/kept {outside}/moved",
        # Files in the root, and protected names.
        f"chmod {MODE:o} {root}/kept",
        f"echo {WRITTEN} >>{root}/.GIT/CONFIG",
        f"echo {WRITTEN} >{root}/.envrc; echo {WRITTEN} >{root}/sub/.Mcp.Json; mkdir {root}/sub/.VSCODE",
        f"ln {root}/.git/config {root}/third && echo {WRITTEN} >>{root}/third",
        f"mkdir {made} {made}/.git && mv {made} {root}/prepared",
        f"mkdir -p {made} && mv {made} {root}/sub/.husky",
        f"mv {root}/.git/hooks {root}/.git/away",
        f"mv {root}/.git {root}/moved",
        # Secrets, under each name that a file has.
        f'for name in {state}/*; do echo "listed $name"; done',
        *(reading(shlex.quote(path), label) for label, path in _second_names(fixture).items()),
        f"mv {root}/closed {root}/opened; {reading(f'{root}/opened/secret', 'moved')}",
        f"ln {hidden} {root}/fourth && {reading(f'{root}/fourth', 'linked')}",
        # Processes.
        f'kill -0 {os.getpid()} && echo "signal worked"',
        f'kill -URG {os.getpid()} && echo "signal worked"',
        'sleep 60 & kill $! && echo "own worked"',
        'if [ -u /bin/ps ]; then /bin/ps >/dev/null && echo "setuid worked"; fi',
        *_ways_out(probe, fixture),
        _calls(fixture),
    )


def _second_names(fixture: Fixture) -> dict[str, str]:
    hidden = fixture.at("hidden")
    look = os.stat(hidden)
    folder, name = os.path.split(hidden)
    return {
        "case": os.path.join(folder, name.upper()),
        "data-volume": f"/System/Volumes/Data{hidden}",
        "inode": f"/.vol/{look.st_dev}/{look.st_ino}",
        "folder-case": os.path.join(folder.upper(), name),
    }


def _ways_out(probe: Probe, fixture: Fixture) -> Iterator[str]:
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


def _calls(fixture: Fixture) -> str:
    local = fixture.at("outside-socket") if fixture.local else ""
    values = (fixture.at("root"), fixture.at("root/closed"), str(fixture.port), local, str(os.getpid()))
    return shlex.join((sys.executable, "-I", "-S", "-c", _CALLS, *values, fixture.token))


_CALLS = """\
import contextlib, ctypes, os, socket, sys
root, hidden_folder, port, local, outsider, token = sys.argv[1:]

def attempt(name, call):
    try:
        if call():
            print(name, "worked", flush=True)
    except (OSError, AttributeError, ValueError, ImportError):
        pass

def connects(family, address):
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as client:
        client.settimeout(5)
        client.connect(address)
    return True

def made_shared():
    import _posixshmem
    os.close(_posixshmem.shm_open(f"/{token}", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600))
    _posixshmem.shm_unlink(f"/{token}")
    return True

def looked_at(pid):
    place = ctypes.create_string_buffer(4096)
    return c.proc_pidinfo(pid, 3, ctypes.c_uint64(0), place, len(place)) > 0

def arguments_of(pid):
    names = (ctypes.c_int * 3)(1, 49, pid)
    place, size = ctypes.create_string_buffer(1 << 20), ctypes.c_size_t(1 << 20)
    return c.sysctl(names, 3, place, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0

def found(service):
    bootstrap, port = ctypes.c_uint.in_dll(c, "bootstrap_port"), ctypes.c_uint()
    return c.bootstrap_look_up(bootstrap, service, ctypes.byref(port)) == 0

c = ctypes.CDLL(None)
if int(port):
    attempt("tcp", lambda: connects(socket.AF_INET, ("127.0.0.1", int(port))))
if local:
    attempt("local", lambda: connects(socket.AF_UNIX, local))
attempt("shared", made_shared)
attempt("others", lambda: looked_at(int(outsider)))
attempt("environment", lambda: arguments_of(int(outsider)))
for service in (b"com.apple.SecurityServer", b"com.apple.pasteboard.1",
                b"com.apple.coreservices.launchservicesd", b"com.apple.coreservices.appleevents"):
    attempt("service-" + service.decode(), lambda: found(service))
attempt("clone", lambda: c.clonefile(hidden_folder.encode(), f"{root}/cloned".encode(), 0) == 0)
attempt("folder", lambda: os.mkdir(f"{root}/swapped"))
attempt("swap", lambda: c.renamex_np(f"{root}/.git".encode(), f"{root}/swapped".encode(), 2) == 0)
print("calls ended", flush=True)
"""
"""Tries calls of the system: those that a system does not have are left out. The names of functions are those
of macOS: clonefile(2), renamex_np(2), sysctl(3), <libproc.h>, <bootstrap.h>."""


def _remove_job() -> None:
    """Take back what a command could submit to launchd, if the sandbox let it."""
    if os.access("/bin/launchctl", os.X_OK):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ("/bin/launchctl", "remove", _JOB), check=False, capture_output=True, timeout=PROBE_SECONDS
            )


_UNREAD = {
    "case": "hidden files cannot be read under a name in another case",
    "folder-case": "hidden files cannot be read through a folder in another case",
    "data-volume": "hidden files cannot be read in /System/Volumes/Data",
    "inode": "hidden files cannot be read by number in /.vol",
    "moved": "hidden files cannot be read when their folder is moved",
    "linked": "hidden files cannot be read through a hard link",
}
"""What is checked where the script prints the secret after a label."""

_FAILING = {
    "signal": "processes outside get no signal",
    "others": "processes outside cannot be looked at",
    "environment": "the environment of processes outside cannot be read",
    "shared": "no memory is shared by name",
    "setuid": "setuid programs do not run",
    "launchd": "launchd takes no job",
    "event": "no application takes an Apple event",
}
"""What is checked where the script prints that something worked."""


def _checks(ended: Ended) -> Iterator[Check]:
    printed, fixture = ended.printed, ended.fixture
    yield from common_checks(ended)
    yield check("programs run", "" if printed.get("program") == "7" else "a shell did not")
    yield check("a command ends its own programs", "" if "own" in printed else "a signal was refused")
    tried = "" if "calls" in printed else f"{sys.executable} did not run to its end"
    yield check("Python runs, which tries the rest", tried)
    yield check("no protected name is made, moved in or moved away", _protected_changes(ended))
    yield from unread(ended, _UNREAD)
    listed = printed.get("listed", "").endswith("/secret")
    yield check("the server's own folder cannot be listed", "it was listed" if listed else "")
    moved = "root/closed/secret" not in ended.after
    yield check("hidden files stay in their place", "one was moved" if moved else "")
    cloned = "root/cloned/secret" in ended.after
    yield check("a folder with hidden files cannot be cloned", "one was cloned" if cloned else "")
    if not ended.probe.sandbox.network:
        reached = "a connection came" if fixture.visited() or "tcp" in printed else ""
        yield check("a socket that listens on this machine cannot be reached", reached)
    if fixture.local is not None:
        reached = "a connection came" if fixture.visited(local=True) or "local" in printed else ""
        yield check("a local socket outside of the root cannot be reached", reached)
    found = sorted(label.removeprefix("service-") for label in printed if label.startswith("service-"))
    yield check("services of the system cannot be reached", f"{', '.join(found)} could" if found else "")
    for label, name in _FAILING.items():
        yield check(name, "it worked" if label in printed else "")


def _protected_changes(ended: Ended) -> str:
    differing = ended.before.keys() ^ ended.after.keys()
    names = sorted(path for path in differing if is_protected(path, git_writable=False))
    return f"{', '.join(names)} appeared or disappeared" if names else ""


# --- helpers ---------------------------------------------------------------------------------------------


def _search(probe: Probe, fixture: Fixture) -> Iterator[Check]:
    """A helper with reach "folder": it reads the root and nothing else."""
    root, outside, state, _ = quoted(fixture)
    lines = (
        reading(f"{root}/kept", "root"),
        reading(f"{outside}/kept", "outside"),
        reading(f"{state}/secret", "state"),
        reading("/private/etc/passwd", "system"),
        f"echo {WRITTEN} >{root}/new; echo {WRITTEN} >{outside}/new",
        '/bin/ls / >/dev/null && echo "program ran"',
    )
    before = fixture.seen()
    printed = _run_helper(probe, fixture, Helper(argv=("/bin/sh",)), lines)
    read = printed.get("root") == fixture.token and "end" in printed
    yield check("a search reads its folder", "" if read else f"it printed {sorted(printed)}")
    others = [label for label in ("outside", "state", "system") if label in printed]
    yield check("a search reads nothing else", f"it read {', '.join(others)}" if others else "")
    yield check("a search writes nothing", "" if fixture.seen() == before else "a file changed")
    yield check("a search starts no other program", "one ran" if "program" in printed else "")


def _git_that_commits(probe: Probe, fixture: Fixture) -> Iterator[Check]:
    """A helper that writes in `.git` only."""
    root, outside, *_ = quoted(fixture)
    lines = (
        f"echo {WRITTEN} >{root}/.git/index",
        f"echo {WRITTEN} >>{root}/.git/config; echo {WRITTEN} >>{root}/.git/hooks/pre-commit",
        f"mv {root}/.git/hooks {root}/.git/away",
        f"echo {WRITTEN} >{root}/new; echo {WRITTEN} >{outside}/new",
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


def _run_helper(probe: Probe, fixture: Fixture, helper: Helper, lines: tuple[str, ...]) -> dict[str, str]:
    """What a helper printed; nothing if it did not run."""
    sandbox = replace(fixture.sandbox(probe.sandbox), mode=READ_ONLY, network=False)
    plan = SandboxPlan(
        layer="seatbelt",
        sandbox=sandbox,
        program=probe.program,
        helper=helper,
        writes=(fixture.at("root/.git"),) if helper.writes else (),
    )
    argv = (*helper.argv, "-c", "\n".join(("exec 2>/dev/null", *lines, 'echo "end reached"')))
    try:
        _, printed = _run(plan, argv, fixture.at("temporary"), {"PATH": DEFAULT_PATH})
    except OSError:
        return {}
    return words_of(printed)
