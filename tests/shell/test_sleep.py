"""How Sleep waits."""

from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.runtime.clock import SystemClock
from tests.plan.planning import PERMISSIONS, call, host, planner
from tests.support.workbench import Person, dispatcher, with_services


class Skipping(SystemClock):
    """Remembers how long it should have waited."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.mark.parametrize(
    ("milliseconds", "waits", "heard"),
    [
        pytest.param(0, [], [], id="not at all"),
        pytest.param(250, [0.25], ["slept 0 of 0.25 s"], id="short"),
        pytest.param(
            2_500,
            [1, 1, 0.5],
            ["slept 0 of 2.5 s", "slept 1 of 2.5 s", "slept 2 of 2.5 s"],
            id="in steps with progress",
        ),
        pytest.param(300_000, [1] * 300, [f"slept {n} of 300 s" for n in range(300)], id="the longest"),
    ],
)
async def test_it_waits_as_long_as_it_says(
    tmp_path: Path, milliseconds: int, waits: list[float], heard: list[str]
) -> None:
    clock, person = Skipping(), Person()
    server = dispatcher(with_services(host(tmp_path), PERMISSIONS, {Capability.CLOCK: lambda _: clock}))
    result = await call(server, "Sleep", person, duration_ms=milliseconds)
    assert (result.error, result.text) == (None, f"Slept for {milliseconds}ms")
    assert (clock.waits, person.heard) == (waits, heard)


@pytest.mark.parametrize("milliseconds", [300_001, -1, 1.5])
async def test_it_waits_no_longer_than_five_minutes(tmp_path: Path, milliseconds: float) -> None:
    result = await call(planner(tmp_path), "Sleep", duration_ms=milliseconds)
    assert result.error == "invalid_input"
    assert "duration_ms" in result.text


async def test_it_really_waits_and_can_be_cancelled(tmp_path: Path) -> None:
    server, second = planner(tmp_path), anyio.Event()

    class Listening(Person):
        async def report(self, message: str) -> None:
            self.heard.append(message)
            if len(self.heard) == 2:
                second.set()

    person = Listening()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.call, "Sleep", {"duration_ms": 300_000}, person)
            await second.wait()
            tasks.cancel_scope.cancel()
    assert person.heard == ["slept 0 of 300 s", "slept 1 of 300 s"]


def test_its_deadline_does_not_come_before_its_end(tmp_path: Path) -> None:
    assert planner(tmp_path).registry.find("Sleep").spec.limits.deadline > 300
