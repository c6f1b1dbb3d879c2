"""Nothing that a command starts outlives its call, its client or its server."""

import signal
import subprocess
from collections import Counter
from pathlib import Path

import anyio
import pytest

from tests.support.families import Family, outcomes
from tests.support.http_server import INITIALIZE, body_of, call
from tests.support.live import Setup, SharedServers
from tests.support.processes import until

FULL = "danger-full-access"
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def gone(family: Family) -> None:
    """Within a second, as promised."""
    await until(lambda: family.is_gone, seconds=1)


@pytest.mark.requirement("GR-67")
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "legacy"), ("http", "auto"), pytest.param("sse", "legacy", marks=pytest.mark.long)],
)
async def test_a_cancelled_call_takes_its_family_along(
    transport: str, era: str, shared: SharedServers
) -> None:
    family, setup = Family(), shared.setup(FULL)
    client = await shared.client(setup, transport, era)
    before = Counter(outcomes(setup.home))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "bash", {"command": family.command})
        await until(lambda: family.runs, seconds=30)
        tasks.cancel_scope.cancel()
    await gone(family)
    assert "again" in str((await client.call_tool("bash", {"command": "echo again"})).content)
    recorded = Counter({("bash", "cancelled"): 1, ("bash", "output"): 1})
    await until(lambda: Counter(outcomes(setup.home)) - before == recorded)


async def test_a_server_that_is_killed_takes_every_family_along(tmp_path: Path) -> None:
    family, setup, pipe = Family(), Setup.below(tmp_path, FULL), subprocess.PIPE
    server = subprocess.Popen(
        setup.command, env=setup.environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    )
    try:
        assert server.stdin is not None
        said = (INITIALIZE, READY, call("bash", command=family.command))
        server.stdin.write(b"".join(body_of(message) + b"\n" for message in said))
        server.stdin.flush()
        await until(lambda: family.runs, seconds=30)
        server.send_signal(signal.SIGKILL)
        await gone(family)
    finally:
        server.kill()
        server.communicate(timeout=10)
