"""Fixtures of the tests of git."""

from collections.abc import Callable, Generator

import pytest

from tests.git.served import Place, git_servers, repository_in
from tests.support.confinement import BY_USER, USERS, Server


@pytest.fixture(scope="session", name="git_servers")
def _git_servers() -> Generator[Callable[[str], Server]]:
    with git_servers() as server:
        yield server


@pytest.fixture(params=BY_USER)
def place(request: pytest.FixtureRequest, git_servers: Callable[[str], Server]) -> Generator[Place]:
    """A repository in the root of the shared server of each user."""
    with repository_in(git_servers(request.param)) as made:
        yield made


@pytest.fixture
def anywhere(git_servers: Callable[[str], Server]) -> Generator[Place]:
    """The same where it makes no difference whose server it is."""
    with repository_in(git_servers(USERS[0])) as made:
        yield made
