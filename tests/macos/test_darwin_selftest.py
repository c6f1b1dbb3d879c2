"""The self-test of the simulated Darwin proves the generated profile, and notices each wrong one."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from mcp_toolserver.runtime.sandbox.selftest.seatbelt_selftest import prove
from tests.darwin.build import StandIn, build, reason_to_skip
from tests.darwin.commands import Places, probe_runner
from tests.darwin.mutations import MUTATIONS

pytestmark = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))

MODES = ("read-only", "workspace-write")


@pytest.fixture
def base() -> Generator[Path]:
    """A folder with a short path, in which a Unix socket has a name."""
    with tempfile.TemporaryDirectory(dir="/srv", prefix="t") as folder:
        yield Path(folder)


def proof(base: Path, mode: str, mutation: str = "") -> tuple[Proof, StandIn]:
    """What the self-test says where each profile has this mistake."""
    places = Places.make(base / "p")
    stand_in = build(base / "stand-in", mutation)
    return prove(places.sandbox(mode, stand_in.program), probe_runner(places.at("state/tmp"))), stand_in


@pytest.mark.parametrize("mode", MODES)
def test_the_profile_is_proven(base: Path, mode: str) -> None:
    proven, _ = proof(base, mode)
    assert (proven.commands, proven.helpers, proven.reasons) == ("seatbelt", "seatbelt", ())
    assert len(proven.checks) > 20
    assert all(check.held for check in proven.checks)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_profile_is_noticed(base: Path, mutation: str) -> None:
    proven, stand_in = proof(base, "workspace-write", mutation)
    assert stand_in.has_mutated
    assert proven.commands == "none"
    assert proven.reasons
