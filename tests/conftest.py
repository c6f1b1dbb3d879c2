"""What every test may use."""

from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from hypothesis import settings

from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.macos import linux_guarantees
from tests.support import process_layer
from tests.support.extent import IN_FULL
from tests.support.official import WITHOUT, is_wanted

if TYPE_CHECKING:
    from tests.support.live import SharedServers

collect_ignore = [] if is_wanted() else ["client_programs", "clients", "conformance", "packaging"]

# How long an example takes says more of the machine than of the code. The gate tries the same examples each
# time, so that it fails for the change that it checks; the long step tries new ones.
settings.register_profile("any machine", deadline=None, derandomize=not IN_FULL)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--caseless", action="store_true", help="put test folders on a volume that ignores case")
    parser.addoption("--update", action="store_true", help="write snapshots and generated documents anew")
    parser.addoption(
        "--process-layer",
        choices=process_layer.LAYERS,
        default=process_layer.selected(),
        help="posix: start programs as on macOS, and leave out the tests of what only Linux guarantees",
    )


def pytest_configure(config: pytest.Config) -> None:
    process_layer.select(str(config.getoption("process_layer")))
    if config.getoption("caseless"):
        from tests.macos import caseless_volume

        caseless_volume.use(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the process layer does not guarantee. Split each group by file: tests share servers
    within a file, so files can run in parallel."""
    if process_layer.selected() == "posix":
        left_out = [item for item in items if linux_guarantees.proven_by(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if config.getoption("caseless"):
            from tests.macos import caseless_volume

            caseless_volume.expect(item)
        if item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what official programs said of the server, which a test records as its summary."""
    if not is_wanted():
        terminalreporter.section("left out")
        terminalreporter.write_line(
            f"the protocol's own programs, and packages: there is no npm, or {WITHOUT} is set"
        )
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.section(str(value).partition("\n")[0])
                terminalreporter.write_line(str(value).partition("\n")[2])


@pytest.fixture(scope="session")
def servers() -> Generator[object]:
    """A server for each user and mode, shared by the tests of a worker."""
    # It takes what only POSIX has, and every run of the tests imports this module.
    from tests.support.confinement import servers_when_needed

    with servers_when_needed() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator["SharedServers"]:
    """Servers and clients for the tests of a file that change neither. Such a test is marked
    `asyncio(loop_scope="session")` and works in a folder of its own in a server's root."""
    from tests.support.live import SharedServers

    servers = SharedServers(tmp_path_factory.mktemp("shared"))
    yield servers
    await servers.aclose()


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether generated files are to be written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def git_broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    """A broker that starts git."""
    from tests.git.repositories import git_broker

    with git_broker(tmp_path_factory.mktemp("home")) as started:
        yield started


@pytest.fixture(scope="session")
def search_broker() -> Generator[Broker]:
    """A broker that starts ripgrep."""
    from tests.search.searching import search_broker

    with search_broker() as started:
        yield started
