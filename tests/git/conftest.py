"""Fixtures of the tests of git."""

import shlex
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.git.hostile_git import GIT, Lair
from tests.git.repositories import GitTools, git_tools
from tests.git.served import AUTHOR, Place, repository_in
from tests.support.confinement import AS_ROOT_IN_LONG, PROTECTED_GIT, Servers
from tests.support.workshop import workshop
from tests.web.authority import Authority


@pytest.fixture(params=AS_ROOT_IN_LONG)
def place(request: pytest.FixtureRequest, servers: Servers) -> Generator[Place]:
    """A repository in the root of the shared server of each user, which may change repositories."""
    with repository_in(servers(request.param, f"{PROTECTED_GIT} {shlex.join(AUTHOR)}")) as made:
        yield made


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """A repository with one commit; in the work tree `file.txt` has a second line."""
    return Lair(tmp_path)


@pytest.fixture
def at(lair: Lair, git_broker: Broker) -> GitTools:
    """The git tools on that repository."""
    return git_tools(lair, git_broker)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server that the tests of a file share; each has the root to itself."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    """Whom the git of that server trusts."""
    return Authority(folder, "git.example")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(folder: Path, authority: Authority) -> AsyncGenerator[Dispatcher]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", f"{folder}/root/home")
        patch.setenv("GIT_SSL_CAINFO", str(authority.file))
        async with workshop(
            folder,
            found=HostExecutables(git=GIT),
            granted=Permission.WORKSPACE_WRITE,
            history_size=0,
            command_environment=("GIT_SSL_CAINFO",),
        ) as made:
            yield made


@pytest.fixture
def rooted(folder: Path, server: Dispatcher) -> Generator[Lair]:
    """A repository in the root of that server, which is empty again after the test."""
    yield Lair(folder / "root")
    subprocess.run(["rm", "-rf", folder / "bare", *(folder / "root").iterdir()], check=True)
