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
from typing import Any, NoReturn

from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, find_shell
from mcp_toolserver.runtime.sandbox.layers import bubblewrap, confinement, landlock, namespaces
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.layers.environment import command_environment
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


def proof(wanted: Wanted, around: Sequence[str] = ()) -> Proof:
    """The proof, made by a process started by the command line `around`."""
    said = {
        "sandbox": {
            "mode": wanted.mode,
            "roots": [str(wanted.base / "root")],
            "home": str(wanted.base / "home"),
            "state": str(wanted.base / "state"),
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


SANDBOXES: Mapping[str, Callable[[SandboxSpec], SandboxSpec]] = {
    "may only read": lambda sandbox: replace(sandbox, mode="read-only"),
    "has network": lambda sandbox: replace(sandbox, network=True),
    "nothing hidden": lambda sandbox: replace(sandbox, state=f"{sandbox.state}/elsewhere", hidden=()),
}


def _refuse(what: str) -> NoReturn:
    raise OSError(what)


def weaken(run: Run, weakness: str) -> Run:
    """`run` with one layer removed."""
    if weakness == "keeps powers":
        bubblewrap.ALWAYS = tuple(word for word in bubblewrap.ALWAYS if word not in ("--cap-drop", "ALL"))
    if weakness == "joins the machine's network":
        namespaces.SessionNamespaces.join = lambda self: None
    if weakness == "cannot share":
        namespaces.create_session = lambda _state, *, network: _refuse(f"no namespace, {network=}")

    def weakened(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
        if weakness == "does not start":
            _refuse("no process can be started")
        if weakness == "lies":
            # It never runs the script, and says that all is well.
            return 0, "root ok\nscratch written\nCapEff: 0\nNoNewPrivs: 1\nSeccomp: 2\n"
        if weakness == "is cut short":
            # It ends before its last two attempts, as when the kernel has no process left.
            script = "\n".join(script.splitlines()[:-2])
        sandbox = SANDBOXES.get(weakness, lambda sandbox: sandbox)(sandbox)
        return run(sandbox, replace(probe, layer="none") if weakness == "no sandbox" else probe, script)

    return weakened


def main() -> None:
    """Read, prove, print."""
    said = json.loads(sys.stdin.buffer.read())
    lists = {name: tuple(value) for name, value in said["sandbox"].items() if isinstance(value, list)}
    sandbox = SandboxSpec(**{**said["sandbox"], **lists})
    environment, shell = command_environment(os.environ), find_shell("/usr/bin")
    run = confinement.probe_runner(BrokerPolicy(sandbox=sandbox, environment=environment, shell=shell))
    abi = landlock.abi() if said["abi"] is None else said["abi"]
    sys.stdout.buffer.write(encode_proof(prove(sandbox, weaken(run, said["weakness"]), abi=abi)))


if __name__ == "__main__":
    main()
