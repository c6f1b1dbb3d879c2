"""What every test may use."""

from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.covering import collect, count, measuring

# How long an example takes says more of the machine than of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write snapshots and generated documents anew")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    count(item.get_closest_marker("uncounted") is None)
    # Around the fixtures too: many of them start what the test needs.
    with measuring(item.get_closest_marker("measured") is not None):
        return (yield)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether generated files are to be written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session", autouse=True)
def _coverage_of_servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    yield
    collect(tmp_path_factory.getbasetemp())
