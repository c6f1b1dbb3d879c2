"""A short form of `python -m benchmarks.fuzz`, with the same seed every time."""

import random

import pytest

from benchmarks.fuzz import Escaped, fuzzed, prove
from benchmarks.fuzz_ground import ground
from benchmarks.hostile_commands import command, entering
from tests.support.confinement import FULL, READ_ONLY, USERS, WORKSPACE_WRITE, serving
from tests.support.extent import rounds

SEED = 2026


@pytest.mark.rounds
@pytest.mark.parametrize(
    ("mode", "user"),
    [
        pytest.param(READ_ONLY, USERS[-1], id=READ_ONLY),
        pytest.param(WORKSPACE_WRITE, USERS[0], id=WORKSPACE_WRITE),
    ],
)
def test_nothing_random_gets_out(mode: str, user: str) -> None:
    tally = fuzzed(mode, paths=rounds(300, 600), commands=rounds(20, 30), seed=SEED, user=user)
    assert tally.succeeded > 40
    assert tally.refused > 60


def test_the_fuzzer_refuses_to_start_without_a_sandbox() -> None:
    with (
        ground(USERS[0], SEED) as at,
        serving(at.scene, FULL) as server,
        pytest.raises(Escaped, match="does not work"),
    ):
        prove(at, server)


def test_every_command_stays_in_the_scene_should_the_sandbox_have_a_hole() -> None:
    with ground(USERS[0], SEED) as at:
        chance = random.Random(SEED)
        for script in (command(chance, at) for _ in range(500)):
            assert script.startswith(f"{entering(at)}\n")
            assert "../.." not in script
            assert "kill -9 -1" not in script
