"""Short forms of `benchmarks.fuzz` and `benchmarks.protected_names`, with the same seeds every time."""

import pytest

from benchmarks.fuzz import Escaped, fuzzed, prove
from benchmarks.fuzz_ground import ground
from benchmarks.protected_names import planted
from tests.support.confinement import FULL, PROTECTED_GIT, READ_ONLY, USERS, WORKSPACE_WRITE, serving
from tests.support.extent import rounds

SEED = 2026


@pytest.mark.rounds
@pytest.mark.parametrize(
    ("mode", "user"),
    [
        # For read-only the gate has `test_escape_shell.py`.
        pytest.param(READ_ONLY, USERS[-1], id=READ_ONLY, marks=pytest.mark.long),
        pytest.param(WORKSPACE_WRITE, USERS[0], id=WORKSPACE_WRITE),
    ],
)
def test_nothing_random_gets_out(mode: str, user: str) -> None:
    tally = fuzzed(mode, paths=rounds(120, 600), commands=rounds(8, 30), seed=SEED, user=user)
    assert tally.succeeded > 20
    assert tally.refused > 30


@pytest.mark.long
def test_the_fuzzer_refuses_to_start_without_a_sandbox() -> None:
    with (
        ground(USERS[0], SEED) as at,
        serving(at.scene, FULL) as server,
        pytest.raises(Escaped, match="does not work"),
    ):
        prove(at, server)


@pytest.mark.long
@pytest.mark.parametrize(
    ("user", "mode"), [(USERS[0], WORKSPACE_WRITE), (USERS[-1], PROTECTED_GIT)], ids=["default", "protected"]
)
def test_no_sequence_plants_or_changes_a_protected_name(user: str, mode: str) -> None:
    """The gate has the cases of `test_escape_persistence.py` and `test_protected_served.py`."""
    tally = planted(user, count=100, seed=SEED + USERS.index(user), mode=mode)
    assert tally.calls > 2 * tally.sequences
    assert tally.errors < tally.calls / 10
