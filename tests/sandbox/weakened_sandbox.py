"""`prove` in a process of its own, in a sandbox as it should be, or with one layer taken down.

`python -m tests.sandbox.weakened_sandbox` reads the sandbox and the weakness as JSON from standard input and
prints the proof.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, find_shell
from mcp_toolserver.runtime.sandbox.layers import bubblewrap, confinement, landlock
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.layers.environment import command_environment
from mcp_toolserver.runtime.sandbox.layers.namespaces import SessionNamespaces
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec, decode_proof, encode_proof
from mcp_toolserver.runtime.sandbox.selftest.probe import Probe, Run
from mcp_toolserver.runtime.sandbox.selftest.selftest import prove
from tests import ROOT


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be proven, and how it is to go wrong."""

    base: Path
    mode: str = "read-only"
    weakness: str = ""
    abi: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the sandbox."""

    @property
    def state(self) -> Path:
        return self.base / "state"


def proof(wanted: Wanted, around: Sequence[str] = ()) -> Proof:
    """The proof, made by a process started by the command line `around`."""
    said = {
        "sandbox": {
            "mode": wanted.mode,
            "roots": [str(wanted.base / "root")],
            "home": str(wanted.base / "home"),
            "state": str(wanted.state),
            "programs": candidates(os.environ["PATH"], ()),
            **wanted.options,
        },
        "weakness": wanted.weakness,
        "abi": wanted.abi,
    }
    done = subprocess.run(
        [*around, sys.executable, "-m", "tests.sandbox.weakened_sandbox"],
        input=json.dumps(said).encode(),
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return decode_proof(done.stdout)


# --- in that process -------------------------------------------------------------------------------------


def _weakened(change: Callable[[SandboxSpec], SandboxSpec], run: Run) -> Run:
    return lambda sandbox, probe, script: run(change(sandbox), probe, script)


def _elsewhere(sandbox: SandboxSpec) -> SandboxSpec:
    """A sandbox that hides something else."""
    return replace(sandbox, state=f"{sandbox.state}/elsewhere", hidden=())


def _all_of_it(sandbox: SandboxSpec) -> SandboxSpec:
    """A sandbox whose root is the whole scene, so that what should be outside is inside."""
    return replace(sandbox, roots=(os.path.dirname(sandbox.roots[0]),))


def _unhidden_and_all(sandbox: SandboxSpec) -> SandboxSpec:
    return _all_of_it(_elsewhere(sandbox))


def _no_run(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
    raise OSError("no process can be started")


def _liar(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
    """It never runs the script, and says that all is well."""
    return 0, "root ok\nscratch written\nCapEff: 0\nNoNewPrivs: 1\nSeccomp: 2\n"


def _cut_short(run: Run) -> Run:
    """The script ends before its last two attempts, as when the kernel has no process left."""
    return lambda sandbox, probe, script: run(sandbox, probe, "\n".join(script.splitlines()[:-2]))


def _without_arguments(run: Run, *words: str) -> Run:
    """Bubblewrap gets fewer arguments."""
    bubblewrap.ALWAYS = tuple(word for word in bubblewrap.ALWAYS if word not in words)
    return run


def _joining_nothing(run: Run) -> Run:
    """Commands stay in the network of the machine instead of joining a shared one."""
    SessionNamespaces.join = lambda self: None
    return run


def _unshared(run: Run) -> Run:
    """No shared network can be made."""

    def refuse(_state: str, *, network: bool) -> SessionNamespaces:
        raise OSError(f"no namespace, {network=}")

    confinement.create_session = refuse
    return run


def weaken(run: Run, weakness: str) -> Run:
    """`run` with one layer removed."""
    weaker: Mapping[str, Callable[[], Run]] = {
        "": lambda: run,
        "no sandbox": lambda: (
            lambda sandbox, probe, script: run(sandbox, replace(probe, layer="none"), script)
        ),
        "landlock instead": lambda: (
            lambda sandbox, probe, script: run(sandbox, replace(probe, layer="landlock"), script)
        ),
        "may write": lambda: _weakened(lambda sandbox: replace(sandbox, mode="workspace-write"), run),
        "may only read": lambda: _weakened(lambda sandbox: replace(sandbox, mode="read-only"), run),
        "has network": lambda: _weakened(lambda sandbox: replace(sandbox, network=True), run),
        "nothing hidden": lambda: _weakened(_elsewhere, run),
        "root too large": lambda: _weakened(_unhidden_and_all, run),
        "host processes": lambda: _without_arguments(run, "--unshare-pid"),
        "keeps powers": lambda: _without_arguments(run, "--cap-drop", "ALL"),
        "joins the machine's network": lambda: _joining_nothing(run),
        "cannot share": lambda: _unshared(run),
        "does not start": lambda: _no_run,
        "lies": lambda: _liar,
        "is cut short": lambda: _cut_short(run),
    }
    return weaker[weakness]()


def main() -> None:
    """Read, prove, print."""
    said = json.loads(sys.stdin.buffer.read())
    lists = {name: tuple(value) for name, value in said["sandbox"].items() if isinstance(value, list)}
    sandbox = SandboxSpec(**{**said["sandbox"], **lists})
    broker_policy = BrokerPolicy(
        sandbox=sandbox, environment=command_environment(os.environ), shell=find_shell("/usr/bin")
    )

    run = confinement.probe_runner(broker_policy)
    abi = landlock.abi() if said["abi"] is None else said["abi"]
    sys.stdout.buffer.write(encode_proof(prove(sandbox, weaken(run, said["weakness"]), abi=abi)))


if __name__ == "__main__":
    main()
