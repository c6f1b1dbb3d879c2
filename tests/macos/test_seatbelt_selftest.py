"""The self-test on macOS proves nothing with a program in the place of sandbox-exec that does not confine."""

import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mcp_toolserver.app import confinement
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.layers import seatbelt
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.posix.broker import prove_layer
from mcp_toolserver.runtime.sandbox.selftest import seatbelt_selftest
from mcp_toolserver.settings import Settings
from tests.support.processes import FULL

LETS_ALL_THROUGH = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'

Prove = Callable[..., Proof]


def program(folder: Path, script: str) -> str:
    """A program in the place of sandbox-exec."""
    place = folder / "sandbox-exec"
    place.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    place.chmod(0o755)
    return str(place)


@pytest.fixture
def base() -> Generator[Path]:
    """A folder with a short path, in which a Unix socket has a name."""
    with TemporaryDirectory(dir="/srv", prefix="t") as folder:
        yield Path(folder)


@pytest.fixture
def prove(base: Path) -> Prove:
    """Proves the sandbox of a mode as the broker does, with a program in the place of sandbox-exec."""
    (base / "root").mkdir()

    def proven(name: str, mode: str = "workspace-write", unwatchable: str = "") -> Proof:
        spec = SandboxSpec(
            mode=mode,
            roots=(str(base / "root"),),
            home=str(base / "home"),
            state=str(base / "state"),
            programs=(name,) if name else (),
        )
        policy = BrokerPolicy(
            sandbox=spec,
            environment={"PATH": "/bin:/usr/bin"},
            shell=("/bin/sh", "-c"),
            scratch=str(base / "state/scratch" / os.urandom(4).hex()),
        )
        return prove_layer(policy, unwatchable)

    return proven


def refused(proof: Proof) -> str:
    assert (proof.commands, proof.helpers, proof.shares_session) == ("none", "none", False)
    return "; ".join(proof.reasons)


NOT_ENFORCED = (
    *("hooks and configuration of git are not changed", "nothing outside of the root is changed"),
    *("no protected name is made, moved in or moved away", "the server's own folder cannot be read"),
    *("hidden files cannot be read", "hidden files cannot be read when their folder is moved"),
    *("hidden files cannot be read through a hard link", "the server's own folder cannot be listed"),
    *("hidden files stay in their place", "a socket that listens on this machine cannot be reached"),
    *("a local socket outside of the root cannot be reached", "processes outside get no signal"),
    "no memory is shared by name",
)
"""What the self-test can see on Linux that nobody enforces."""


def test_a_program_that_enforces_nothing_proves_nothing(base: Path, prove: Prove) -> None:
    reasons = refused(prove(program(base, LETS_ALL_THROUGH)))
    unnoticed = [name for name in (*NOT_ENFORCED, "nothing in the root is changed") if name not in reasons]
    assert unnoticed == []


HELD = Check(name="made up", held=True)


def test_a_mode_that_is_not_held_leaves_helpers_that_only_read(
    base: Path, prove: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Helpers are only tried where commands are held.
    monkeypatch.setattr(seatbelt_selftest, "_checks", lambda *_: iter((HELD,)))
    reasons = refused(prove(program(base, LETS_ALL_THROUGH)))
    for action in ("reads nothing else", "writes nothing", "starts no other program"):
        assert f"a search {action}" in reasons
    monkeypatch.setattr(seatbelt_selftest, "_search", lambda *_: iter((HELD,)))
    found = prove(program(base, LETS_ALL_THROUGH))
    assert (found.commands, found.helpers, found.shares_session) == ("none", "seatbelt", False)
    assert "git of the server writes nothing else" in "; ".join(found.reasons)
    found = prove(program(base, LETS_ALL_THROUGH), "read-only")
    assert (found.commands, found.helpers, found.shares_session) == ("seatbelt", "seatbelt", True)


SCRIPTS = {
    "refuses everything": ("exit 1", "it ended with status 1"),
    "does nothing": ("exit 0", "it ended with status 0"),
    "prints what the self-test expects": ("echo root; echo end reached", "it ended with status 0"),
    "kills itself": ("kill -9 $$", "it ended with status -9"),
    "hangs": ("exec sleep 600", "did not run to its end"),
}


def test_a_program_that_runs_nothing_proves_nothing(
    base: Path, prove: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seatbelt_selftest, "PROBE_SECONDS", 1.0)
    found = {kind: refused(prove(program(base, script))) for kind, (script, _) in SCRIPTS.items()}
    assert [kind for kind, (_, words) in SCRIPTS.items() if words not in found[kind]] == [], found
    assert "No such file" in refused(prove("/nowhere/sandbox-exec"))
    not_executable = program(base, "exit 0")
    os.chmod(not_executable, 0o644)
    assert "Permission denied" in refused(prove(not_executable))


def test_where_nothing_can_be_proven_nothing_is_tried(base: Path, prove: Prove) -> None:
    place = program(base, f"touch {base}/ran; exit 1")
    assert "without a sandbox" in refused(prove(place, FULL))
    assert "ps is missing" in refused(prove(place, unwatchable="ps is missing"))
    assert "no sandbox-exec" in refused(prove(""))
    (base / "state").write_text("no folder", encoding="ascii")
    assert "could not be tested" in refused(prove(place))
    assert not (base / "ran").exists()


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
