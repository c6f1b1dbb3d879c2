"""A broker that starts language servers, for the tests of a file."""

from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.lsp.languages import Place, language_broker


@pytest.fixture(scope="module")
def starting() -> Generator[Broker]:
    with language_broker() as started:
        yield started


@pytest.fixture
def place(tmp_path: Path, starting: Broker) -> Place:
    return Place(tmp_path, starting)
