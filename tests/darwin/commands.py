"""Runs scripts behind the profile that the server generates, with the stand-in for `sandbox-exec`."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import Helper, SandboxPlan, find_shell
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH
from mcp_toolserver.runtime.sandbox.layers.seatbelt import arguments
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.selftest.probe import Probe, Run
from tests.support.processes import PATIENCE


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders to work in, all with links resolved."""

    base: Path

    @classmethod
    def make(cls, base: Path) -> "Places":
        """Make them below `base`."""
        found = cls(base=base.resolve())
        for name in ("root/.git/hooks", "root/sub", "outside", "home", "state/tmp"):
            (found.base / name).mkdir(parents=True)
        for name in ("root/kept", "root/.git/config", "outside/kept", "state/secret", "hidden"):
            (found.base / name).write_text("content\n", encoding="utf-8")
        return found

    def at(self, name: str) -> str:
        """The path of one of them, or of a file below."""
        return str(self.base / name)

    def sandbox(self, mode: str, program: str) -> SandboxSpec:
        """What an operator of a server with these folders wants."""
        return SandboxSpec(
            mode=mode,
            roots=(self.at("root"),),
            home=self.at("home"),
            state=self.at("state"),
            hidden=(self.at("hidden"),),
            programs=(program,),
        )


def run_script(
    sandbox: SandboxSpec, script: str, *, temporary: str, hidden: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script for a shell as a command of the server is run."""
    plan = SandboxPlan(layer="seatbelt", sandbox=sandbox, program=sandbox.programs[0])
    argv = (*find_shell(DEFAULT_PATH), script)
    cwd = sandbox.roots[0]
    return _run(arguments(plan, argv, temporary=temporary, cwd=cwd, hidden=hidden), cwd, temporary)


def run_helper(
    sandbox: SandboxSpec, helper: Helper, more: Sequence[str], *, temporary: str, cwd: str
) -> subprocess.CompletedProcess[str]:
    """Run a helper program as the server runs it."""
    reading = replace(sandbox, mode="read-only", network=False)
    plan = SandboxPlan(layer="seatbelt", sandbox=reading, program=sandbox.programs[0], helper=helper)
    return _run(arguments(plan, (*helper.argv, *more), temporary=temporary, cwd=cwd), cwd, temporary)


def _run(line: Sequence[str], cwd: str, temporary: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, cwd=cwd, env={"PATH": DEFAULT_PATH, "TMPDIR": temporary, "HOME": temporary, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        encoding="utf-8", errors="replace", timeout=PATIENCE,
    )  # fmt: skip


def probe_runner(temporary: str) -> Run:
    """What runs the script of a probe in this process, as the broker does in a fork."""

    def run(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
        os.makedirs(temporary, exist_ok=True)
        tried = replace(sandbox, programs=(probe.program or sandbox.programs[0],))
        done = run_script(tried, script, temporary=temporary)
        return done.returncode, done.stdout

    return run
