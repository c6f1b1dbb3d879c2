"""A short form of `python -m benchmarks.protected_names`, with the same seeds every time."""

import pytest

from benchmarks.protected_names import planted
from tests.support.confinement import PROTECTED_GIT, USERS, WORKSPACE_WRITE
from tests.support.extent import rounds

SEED = 2026


@pytest.mark.rounds
@pytest.mark.parametrize(
    ("user", "mode"),
    [
        pytest.param(user, mode, id=f"{user}-{mode}", marks=pytest.mark.xdist_group(user))
        for user, mode in ((USERS[0], WORKSPACE_WRITE), (USERS[-1], PROTECTED_GIT))
    ],
)
def test_no_sequence_plants_or_changes_a_protected_name(user: str, mode: str) -> None:
    """Slow: every sequence runs several commands, and the whole workspace is compared after each sequence.

    Each user has sequences of its own.
    """
    tally = planted(user, count=rounds(8, 100), seed=SEED + USERS.index(user), mode=mode)
    assert tally.calls > 2 * tally.sequences
    assert tally.errors < tally.calls / 10
