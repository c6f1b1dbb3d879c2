"""The self-test: tries each sandbox layer on this machine, best first, before any command may run.

It fails closed. A layer that cannot be tried, or of which one check fails, is not used, and the reasons say
what was tried and what was seen.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from mcp_toolserver.runtime.sandbox.broker.policy import UNCONFINED
from mcp_toolserver.runtime.sandbox.layers.landlock import LEAST_ABI
from mcp_toolserver.runtime.sandbox.layers.seccomp import missing_filter
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Layer, Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.selftest.fixture import Fixture, make_fixture
from mcp_toolserver.runtime.sandbox.selftest.probe import Probe, Run, probe_linux

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
        with ExitStack() as fixtures:
            return _SelfTest(sandbox=sandbox, run=run, abi=abi, fixtures=fixtures).proof()
    except Exception as error:  # noqa: BLE001  # a server without commands is better than none
        why = f"the sandbox could not be tested: {str(error) or type(error).__name__}"
        return Proof(commands="none", helpers="none", reasons=(why,))


@dataclass(kw_only=True)
class _SelfTest:
    sandbox: SandboxSpec
    run: Run
    abi: int
    fixtures: ExitStack
    unfiltered: str = field(default_factory=missing_filter)
    """Why system calls are not filtered here, or nothing."""
    reasons: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    fixture: Fixture | None = None

    def proof(self) -> Proof:
        layer, tried, checks = self._commands()
        helpers = self._helpers(layer)
        return Proof(
            commands=layer,
            helpers=helpers,
            program=tried.program if tried else "",
            filtered=not self.unfiltered,
            shares_session=tried is not None and tried.shares_session,
            checks=checks,
            reasons=tuple(self.reasons),
            failed=tuple(self.failed),
        )

    def _commands(self) -> tuple[Layer, Probe | None, tuple[Check, ...]]:
        """The best layer that holds, how it was tried, and what was seen."""
        if self.sandbox.mode == UNCONFINED:
            self.reasons.append(f"commands run without a sandbox in {UNCONFINED}")
            return "none", None, ()
        for program in self.sandbox.programs if self._may_use_bubblewrap() else ():
            probe = Probe(
                sandbox=self.sandbox,
                layer="bubblewrap",
                program=program,
                filtered=not self.unfiltered,
                holds_pipes=self.abi > 0,
            )
            if found := self._bubblewrap(probe):
                return "bubblewrap", *found
        landlock = Probe(sandbox=self.sandbox, layer="landlock")
        if self._may_use_landlock() and (checks := self._try("Landlock", landlock)):
            self.reasons += [_COMPARED, _SHARED] if self.sandbox.mode == WORKSPACE_WRITE else [_SHARED]
            return "landlock", landlock, checks
        return "none", None, ()

    def _bubblewrap(self, probe: Probe) -> tuple[Probe, tuple[Check, ...]] | None:
        """How bubblewrap was tried, and what was seen; None when it does not hold."""
        sharing = replace(probe, shares_session=True)
        if checks := self._try("the commands of a session share nothing", sharing):
            return sharing, checks
        without = self.reasons.pop()
        if not (checks := self._try(f"bubblewrap ({probe.program})", probe)):
            return None
        self.reasons.append(without)
        return probe, checks

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

    def _helpers(self, commands: Layer) -> Layer:
        """They only read, so Landlock always does; what they may read is narrower than for a command."""
        if commands == "landlock":
            return "landlock"
        if not self._missing_for_landlock():
            reading = replace(self.sandbox, mode=READ_ONLY, network=False)
            if self._try("Landlock around helpers", Probe(sandbox=reading, layer="landlock", brief=True)):
                return "landlock"
        return commands

    def _try(self, name: str, probe: Probe) -> tuple[Check, ...]:
        """What was seen; nothing, with a reason more, when it does not hold."""
        self.fixture = self.fixture or self.fixtures.enter_context(make_fixture(self.sandbox.state))
        outcome = probe_linux(probe, self.run, self.fixture)
        if outcome.problem:
            # A layer that failed may have changed the fixture, so that the next probe would prove nothing.
            self.fixture = None
            self.reasons.append(f"{name}: {outcome.problem}")
            self.failed += outcome.failed
            return ()
        return outcome.checks
