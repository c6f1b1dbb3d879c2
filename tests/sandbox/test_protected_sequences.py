"""A short form of `python -m benchmarks.protected_names`, with the same seed every time."""

import pytest

from benchmarks.protected_names import is_protected_name, planted
from tests.support.confinement import BY_USER
from tests.support.extent import rounds

SEED = 2026


@pytest.mark.rounds
@pytest.mark.parametrize("user", BY_USER)
def test_no_sequence_plants_or_changes_a_protected_name(user: str) -> None:
    """Slow: every sequence runs several commands, and the whole workspace is compared after each sequence."""
    tally = planted(user, count=rounds(15, 200), seed=SEED)
    assert tally.calls > 2 * tally.sequences
    assert tally.errors < tally.calls / 10


@pytest.mark.parametrize("name", [".git", ".GIT", ".git. ", ".g\u200cit", "git~1", ".git:x", ".Envrc"])
def test_the_listing_knows_every_spelling(name: str) -> None:
    assert is_protected_name(name)
    assert not is_protected_name(f"x{name}")
