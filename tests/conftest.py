"""What every test may use."""

from collections.abc import Generator

import pytest

from tests.covering import collect


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write snapshots and generated documents anew")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether generated files are to be written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session", autouse=True)
def _coverage_of_servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    yield
    collect(tmp_path_factory.getbasetemp())
