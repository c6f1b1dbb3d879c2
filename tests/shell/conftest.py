"""Brokers that the tests of a worker share. A test that ends, starves or inspects its broker has its own."""

from collections.abc import Callable, Generator
from contextlib import ExitStack

import pytest

from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from tests.support.processes import FULL, broker

Brokers = Callable[[str, CommandBounds], Broker]

HELPERS = (
    Helper(argv=("/bin/echo", "--fixed")),
    Helper(argv=("/bin/bash", "-c"), reach="system"),
    Helper(argv=("/nonexistent/program",)),
)
"""Programs that tests start without a shell."""


@pytest.fixture(scope="session")
def brokers() -> Generator[Brokers]:
    """A broker in full access for each process layer and bounds, started when it is first asked for."""
    with ExitStack() as stack:
        started: dict[tuple[str, CommandBounds], Broker] = {}

        def found(layer: str, bounds: CommandBounds) -> Broker:
            if (layer, bounds) not in started:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(broker_client, "process_layer", lambda: layer)
                    made = stack.enter_context(broker(FULL, *HELPERS, bounds=bounds))
                started[layer, bounds] = made
            return started[layer, bounds]

        yield found


@pytest.fixture
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The process layer of brokers that the test starts: that of Linux, or the one that it names."""
    name: str = getattr(request, "param", "linux")
    monkeypatch.setattr(broker_client, "process_layer", lambda: name)
    return name


@pytest.fixture
def at(layer: str, brokers: Brokers) -> Broker:
    """The shared broker of the layer, with the bounds of the product."""
    return brokers(layer, CommandBounds())
