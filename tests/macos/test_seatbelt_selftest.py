"""The self-test on macOS, behind the stand-in for Seatbelt: what holds is proven, what does not is named."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.sandbox.broker.policy import SandboxPlan
from mcp_toolserver.runtime.sandbox.layers import seatbelt
from mcp_toolserver.runtime.sandbox.layers.seatbelt import arguments
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.selftest.probe import Probe
from mcp_toolserver.runtime.sandbox.selftest.seatbelt_selftest import prove
from mcp_toolserver.settings import Settings
from tests.darwin import build
from tests.support.processes import PATIENCE

NOT_THERE = build.reason_to_skip()
enforced = pytest.mark.skipif(NOT_THERE is not None, reason=NOT_THERE or "")

Prove = Callable[[str, str], Proof]


@pytest.fixture
def proof(tmp_path: Path) -> Prove:
    """Proves a mode with a program in the place of sandbox-exec."""

    def made(program: str, mode: str) -> Proof:
        state = tmp_path / "state"
        temporary = state / "temporary"
        temporary.mkdir(parents=True, exist_ok=True)

        def run(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
            plan = SandboxPlan(layer="seatbelt", sandbox=sandbox, program=probe.program)
            cwd = sandbox.roots[0]
            done = subprocess.run(
                arguments(plan, ("/bin/sh", "-c", script), temporary=str(temporary), cwd=cwd),
                cwd=cwd,
                env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)},
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=6 * PATIENCE,
            )
            return done.returncode, done.stdout + done.stderr

        sandbox = SandboxSpec(
            mode=mode,
            roots=(str(tmp_path / "root"),),
            home=str(tmp_path / "home"),
            state=str(state),
            programs=(program,) if program else (),
        )
        return prove(sandbox, run)

    return made


@enforced
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_the_profile_is_proven_where_it_is_enforced(tmp_path: Path, proof: Prove, mode: str) -> None:
    found = proof(build.build(tmp_path / "stand-in").program, mode)
    assert (found.commands, found.helpers, found.reasons) == ("seatbelt", "seatbelt", ())
    assert all(check.held for check in found.checks)
    assert len(found.checks) > 25


def test_a_program_that_enforces_nothing_proves_nothing(tmp_path: Path, proof: Prove) -> None:
    program = tmp_path / "sandbox-exec"
    lines = (
        f"#!{sys.executable} -IS",
        "import os, sys",
        "argv = sys.argv[sys.argv.index('--') + 1 :]",
        "os.execv(argv[0], argv)",
    )
    program.write_text("\n".join(lines), encoding="utf-8")
    program.chmod(0o755)
    found = proof(str(program), "workspace-write")
    assert (found.commands, found.helpers) == ("none", "none")
    for name in (
        "nothing in the root is changed",
        "hidden files cannot be read",
        "processes outside get no signal",
    ):
        assert name in found.reasons[0]


def test_a_program_that_does_not_run_proves_nothing(proof: Prove) -> None:
    found = proof("/nowhere/sandbox-exec", "workspace-write")
    assert (found.commands, found.helpers) == ("none", "none")
    assert "could not be started" in found.reasons[0]


def test_without_sandbox_exec_and_in_full_access_nothing_is_tried(proof: Prove) -> None:
    assert "is not there" in proof("", "read-only").reasons[0]
    assert "without a sandbox" in proof("/x", "danger-full-access").reasons[0]


def test_a_state_folder_that_cannot_be_used_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, proof: Prove
) -> None:
    from mcp_toolserver.runtime.sandbox.selftest import seatbelt_selftest

    def broken(_: str) -> None:
        raise OSError("no private folder")

    monkeypatch.setattr(seatbelt_selftest, "make_fixture", broken)
    assert "could not be tested: no private folder" in proof("/x", "read-only").reasons[0]


def test_on_macos_the_program_is_sandbox_exec_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(root=(str(tmp_path),), permission_mode=Permission.READ_ONLY)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(confinement, "descriptor_path", lambda _: "/as/stored")
    monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", "/bin/sh")
    sandbox = confinement.sandbox(settings)
    assert sandbox.programs == ("/bin/sh",)
    assert sandbox.home == "/as/stored"
    monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", "/nowhere")
    assert confinement.sandbox(settings).programs == ()
