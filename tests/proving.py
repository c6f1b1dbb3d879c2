"""`prove` in a process of its own, behind walls as they should be, or with one of them taken down.

`python -m tests.proving` reads the walls and the weakness as JSON from standard input and prints the proof.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.sandbox import bubblewrap, confined, kernel
from mcp_toolserver.runtime.sandbox.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.canary import Run, missing_filter, prove
from mcp_toolserver.runtime.sandbox.charter import Behind, Charter, find_shell
from mcp_toolserver.runtime.sandbox.environment import command_environment
from mcp_toolserver.runtime.sandbox.trial import Trial
from mcp_toolserver.runtime.sandbox.walls import Proof, Walls, heard, told

HERE = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be proven, and how it is to go wrong."""

    base: Path
    mode: str = "read-only"
    weakness: str = ""
    abi: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the walls."""

    @property
    def state(self) -> Path:
        return self.base / "state"


def proof(wanted: Wanted, around: Sequence[str] = ()) -> Proof:
    """The proof, made by a process started by the command line `around`."""
    said = {
        "walls": {
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
        [*around, sys.executable, "-m", "tests.proving"],
        input=json.dumps(said).encode(),
        capture_output=True,
        cwd=HERE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return heard(done.stdout)


# --- in that process -------------------------------------------------------------------------------------


def _weakened(change: Callable[[Walls], Walls], run: Run) -> Run:
    return lambda walls, trial, script: run(change(walls), trial, script)


def _elsewhere(walls: Walls) -> Walls:
    """Walls that hide something else."""
    return replace(walls, state=f"{walls.state}/elsewhere", hidden=())


def _all_of_it(walls: Walls) -> Walls:
    """Walls around the whole scene, so that what should be outside is within."""
    return replace(walls, roots=(os.path.dirname(walls.roots[0]),))


def _unhidden_and_all(walls: Walls) -> Walls:
    return _all_of_it(_elsewhere(walls))


def _no_run(walls: Walls, trial: Trial, script: str) -> tuple[int, str]:
    raise OSError("no process can be started")


def _liar(walls: Walls, trial: Trial, script: str) -> tuple[int, str]:
    """It never runs the script, and says that all is well."""
    return 0, "root ok\nscratch written\nCapEff: 0\nNoNewPrivs: 1\nSeccomp: 2\n"


def _without_arguments(run: Run, *words: str) -> Run:
    """Bubblewrap itself is told less."""
    bubblewrap.ALWAYS = tuple(word for word in bubblewrap.ALWAYS if word not in words)
    return run


def weaken(run: Run, weakness: str) -> Run:
    """`run`, with one wall taken down."""
    weaker: Mapping[str, Callable[[], Run]] = {
        "": lambda: run,
        "no walls": lambda: lambda walls, trial, script: run(walls, replace(trial, layer="none"), script),
        "landlock instead": lambda: (
            lambda walls, trial, script: run(walls, replace(trial, layer="landlock"), script)
        ),
        "may write": lambda: _weakened(lambda walls: replace(walls, mode="workspace-write"), run),
        "may only read": lambda: _weakened(lambda walls: replace(walls, mode="read-only"), run),
        "has network": lambda: _weakened(lambda walls: replace(walls, network=True), run),
        "nothing hidden": lambda: _weakened(_elsewhere, run),
        "root too large": lambda: _weakened(_unhidden_and_all, run),
        "host processes": lambda: _without_arguments(run, "--unshare-pid"),
        "keeps powers": lambda: _without_arguments(run, "--cap-drop", "ALL"),
        "does not start": lambda: _no_run,
        "lies": lambda: _liar,
    }
    return weaker[weakness]()


def main() -> None:
    """Read, prove, print."""
    said = json.loads(sys.stdin.buffer.read())
    lists = {name: tuple(value) for name, value in said["walls"].items() if isinstance(value, list)}
    walls = Walls(**{**said["walls"], **lists})
    charter = Charter(walls=walls, environment=command_environment(os.environ), shell=find_shell("/usr/bin"))

    filtered = not missing_filter()

    def run(walls: Walls, trial: Trial, script: str) -> tuple[int, str]:
        behind = Behind(
            layer=trial.layer, walls=walls, program=trial.program, filtered=filtered, ahead=trial.ahead
        )
        return confined.run_behind(behind, charter, script)

    abi = kernel.landlock_abi() if said["abi"] is None else said["abi"]
    sys.stdout.buffer.write(told(prove(walls, weaken(run, said["weakness"]), abi=abi)))


if __name__ == "__main__":
    main()
