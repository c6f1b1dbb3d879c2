"""How Sleep waits."""

from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.runtime.clock import SystemClock
from tests.plan.planning import PERMISSIONS, host, planner
from tests.support.processes import until
from tests.support.workbench import Person, call, dispatcher, with_services


class Skipping(SystemClock):
    """Remembers how long it should have waited."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.mark.requirement("CL-51")
async def test_it_waits_as_long_as_it_says_in_steps_with_progress(tmp_path: Path) -> None:
    expected: dict[int, tuple[list[float], list[str]]] = {
        0: ([], []),
        250: ([0.25], ["slept 0 of 0.25 s"]),
        2_500: ([1, 1, 0.5], ["slept 0 of 2.5 s", "slept 1 of 2.5 s", "slept 2 of 2.5 s"]),
        300_000: ([1] * 300, [f"slept {n} of 300 s" for n in range(300)]),
    }
    for milliseconds, (waits, heard) in expected.items():
        clock, person = Skipping(), Person()
        server = dispatcher(
            with_services(host(tmp_path), PERMISSIONS, {Capability.CLOCK: lambda _, c=clock: c})
        )
        result = await call(server, "Sleep", person, duration_ms=milliseconds)
        assert (result.error, result.text) == (None, f"Slept for {milliseconds}ms")
        assert (clock.waits, person.heard) == (waits, heard)


async def test_it_waits_no_longer_than_five_minutes(tmp_path: Path) -> None:
    server = planner(tmp_path)
    for milliseconds in (300_001, -1, 1.5):
        result = await call(server, "Sleep", duration_ms=milliseconds)
        assert result.error == "invalid_input"
        assert "duration_ms" in result.text
    assert server.registry.find("Sleep").spec.limits.deadline > 300


async def test_it_really_waits_and_can_be_cancelled(tmp_path: Path) -> None:
    server, person = planner(tmp_path), Person()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.call, "Sleep", {"duration_ms": 300_000}, person)
        await until(lambda: len(person.heard) == 2)
        tasks.cancel_scope.cancel()
    assert person.heard == ["slept 0 of 300 s", "slept 1 of 300 s"]
