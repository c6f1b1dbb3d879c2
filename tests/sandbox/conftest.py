"""Grounds for single commands in the sandbox of bubblewrap, as each user."""

from collections.abc import Generator

import pytest

from tests.sandbox.sandboxed import Ground, Starter, ground, starter
from tests.support.confinement import USERS


@pytest.fixture(scope="module", params=USERS)
def process(request: pytest.FixtureRequest) -> Generator[Starter]:
    """What starts commands for a user."""
    with starter(request.param) as started:
        yield started


@pytest.fixture
def here(process: Starter) -> Generator[Ground]:
    """A ground for one test; a test with a table makes one for each case."""
    with ground(process) as made:
        yield made
