"""The self-test: tries each sandbox layer on this machine, best first, before any command may run.

It fails closed. A layer that cannot be tried, or of which one check fails, is not used, and the reasons say
what was tried and what was seen.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import UNCONFINED, find_shell
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH
from mcp_toolserver.runtime.sandbox.layers.landlock import LEAST_ABI
from mcp_toolserver.runtime.sandbox.layers.seccomp import missing_filter
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.selftest.probe import (
    MODE,
    Ended,
    Fixture,
    Probe,
    Run,
    check,
    common_checks,
    quoted,
    reading,
    run_probe,
)

READ_ONLY, WORKSPACE_WRITE = "read-only", "workspace-write"

_SHARED = (
    "behind Landlock commands see the processes of this machine, and have no /dev/shm for what shares memory"
)
_COMPARED = (
    "Landlock cannot protect .git, .vscode and the like in a root that may be written: they are compared "
    "after each run. Nor does it keep the modes and times of files elsewhere, nor before version 9 commands "
    "from sockets outside the roots"
)
_NOT_ALLOWED = (
    "Landlock alone is not used where commands may write, because it cannot protect .git/hooks; "
    "--allow-degraded uses it all the same"
)

_PIPES = (
    "without Landlock (Linux 5.13, and in `lsm=` on the kernel's command line) commands can write into named "
    "pipes outside the roots"
)
_PIPES_NOT_ALLOWED = f"bubblewrap: {_PIPES}; --allow-degraded uses it all the same"


def prove(sandbox: SandboxSpec, run: Run, *, abi: int) -> Proof:
    """Try the layers that `sandbox` may use. `abi` is the version of Landlock here.

    Nothing is raised: where the proof itself goes wrong, no command runs.
    """
    try:
        return _SelfTest(sandbox=sandbox, run=run, abi=abi).proof()
    except Exception as error:  # noqa: BLE001  # a server without commands is better than none
        why = f"the sandbox could not be tested: {str(error) or type(error).__name__}"
        return Proof(reasons=(why,))


@dataclass(kw_only=True)
class _SelfTest:
    sandbox: SandboxSpec
    run: Run
    abi: int
    unfiltered: str = field(default_factory=missing_filter)
    """Why system calls are not filtered here, or nothing."""
    reasons: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])

    def proof(self) -> Proof:
        commands = self._commands()
        return replace(
            commands,
            helpers="landlock" if self._holds_helpers(commands) else commands.commands,
            filtered=not self.unfiltered,
            reasons=tuple(self.reasons),
            failed=tuple(self.failed),
        )

    def _commands(self) -> Proof:
        if self.sandbox.mode == UNCONFINED:
            self.reasons.append(f"commands run without a sandbox in {UNCONFINED}")
            return Proof()
        for program in self.sandbox.programs if self._may_use_bubblewrap() else ():
            if proof := self._bubblewrap(program):
                return proof
        landlock = Probe(sandbox=self.sandbox, layer="landlock")
        if self._may_use_landlock() and (checks := self._try("Landlock", landlock)):
            self.reasons += [_COMPARED, _SHARED] if self.sandbox.mode == WORKSPACE_WRITE else [_SHARED]
            return Proof(commands="landlock", helpers="landlock", checks=checks)
        return Proof()

    def _bubblewrap(self, program: str) -> Proof | None:
        """The proof of this program, where commands share what they may; None when it does not hold."""
        probe = Probe(
            sandbox=self.sandbox,
            layer="bubblewrap",
            program=program,
            filtered=not self.unfiltered,
            shares_session=True,
            holds_pipes=self.abi > 0,
        )
        proof = Proof(commands="bubblewrap", program=program)
        if checks := self._try("the commands of a session share nothing", probe):
            return replace(proof, shares_session=True, checks=checks)
        without = self.reasons.pop()
        if checks := self._try(f"bubblewrap ({program})", replace(probe, shares_session=False)):
            self.reasons.append(without)
            return replace(proof, checks=checks)
        return None

    def _may_use_bubblewrap(self) -> bool:
        if not self.sandbox.programs:
            self.reasons.append("bubblewrap: no program was found, at /usr/bin/bwrap, in a wheel or on PATH")
        if self.unfiltered and self.sandbox.network:
            self.reasons.append(f"bubblewrap: commands may use the network, and {self.unfiltered}")
            return False
        if not self.abi and self.sandbox.programs:
            self.reasons.append(_PIPES if self.sandbox.allow_degraded else _PIPES_NOT_ALLOWED)
            if not self.sandbox.allow_degraded:
                return False
        if self.unfiltered:
            self.reasons.append(f"bubblewrap stands alone: {self.unfiltered}")
        return True

    def _may_use_landlock(self) -> bool:
        missing = self._missing_for_landlock()
        if missing:
            self.reasons.append(missing)
        elif self.sandbox.mode == WORKSPACE_WRITE and not self.sandbox.allow_degraded:
            self.reasons.append(_NOT_ALLOWED)
        else:
            return True
        return False

    def _missing_for_landlock(self) -> str:
        if self.unfiltered:
            return f"Landlock is not used without a filter for system calls: {self.unfiltered}"
        if self.abi >= LEAST_ABI:
            return ""
        found = f"has version {self.abi} here, of which files can be emptied;" if self.abi else "is not here;"
        return f"Landlock {found} version {LEAST_ABI} (Linux 6.2) is needed"

    def _holds_helpers(self, proof: Proof) -> bool:
        """They only read, so Landlock always does; what they may read is narrower than for a command."""
        if proof.commands == "landlock":
            return True
        if self._missing_for_landlock():
            return False
        reading = replace(self.sandbox, mode=READ_ONLY, network=False)
        return bool(
            self._try("Landlock around helpers", Probe(sandbox=reading, layer="landlock", brief=True))
        )

    def _try(self, name: str, probe: Probe) -> tuple[Check, ...]:
        """What was seen; nothing, with a reason more, when it does not hold."""
        outcome = run_probe(probe, self.run, _attempts, _checks)
        if outcome.problem:
            self.reasons.append(f"{name}: {outcome.problem}")
            self.failed += outcome.failed
            return ()
        return outcome.checks


# --- what is tried in a layer ----------------------------------------------------------------------------

_STATUS = ("CapEff:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:")


def _attempts(probe: Probe, fixture: Fixture) -> Iterator[str]:
    """What is run. It starts as few programs as it can: each costs as much as all the rest."""
    yield 'while read -r name value; do echo "$name $value"; done </proc/self/status'
    yield reading(f"/proc/{os.getpid()}/stat", "outsider")
    if not probe.brief:
        yield from _with_programs(probe, fixture)


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
    if ended.probe.brief:
        return
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
