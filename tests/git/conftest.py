"""Fixtures of the tests of git."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools, git_tools
from tests.git.served import Place, git_servers, repository_in
from tests.support.confinement import AS_ROOT_IN_LONG, Server


@pytest.fixture(scope="session", name="git_servers")
def _git_servers() -> Generator[Callable[[str], Server]]:
    with git_servers() as server:
        yield server


@pytest.fixture(params=AS_ROOT_IN_LONG)
def place(request: pytest.FixtureRequest, git_servers: Callable[[str], Server]) -> Generator[Place]:
    """A repository in the root of the shared server of each user."""
    with repository_in(git_servers(request.param)) as made:
        yield made


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """A repository with one commit; in the work tree `file.txt` has a second line."""
    return Lair(tmp_path)


@pytest.fixture
def at(lair: Lair, git_broker: Broker) -> GitTools:
    """The git tools on that repository."""
    return git_tools(lair, git_broker)
