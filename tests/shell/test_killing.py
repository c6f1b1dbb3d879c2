"""Nothing that a command starts outlives its call, its client or its server."""

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.support.families import Family, outcomes
from tests.support.live import TOKEN, Setup, SharedServers
from tests.support.processes import until

FULL = "danger-full-access"


async def gone(family: Family) -> None:
    """Within a second, as promised."""
    await until(lambda: family.is_gone, seconds=1)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto"), ("sse", "legacy")],
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


def lines(command: str) -> bytes:
    """A client's first words and one call, as it would write them."""
    said: list[dict[str, Any]] = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "bash", "arguments": {"command": command}},
        },
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in said)


async def test_a_server_that_is_killed_takes_every_family_along(tmp_path: Path) -> None:
    family, setup, pipe = Family(), Setup.below(tmp_path, FULL), subprocess.PIPE
    server = subprocess.Popen(
        setup.command, env=setup.environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    )
    try:
        assert server.stdin is not None
        server.stdin.write(lines(family.command))
        server.stdin.flush()
        await until(lambda: family.runs, seconds=30)
        server.send_signal(signal.SIGKILL)
        await gone(family)
    finally:
        server.kill()
        server.communicate(timeout=10)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_handshake_http_client_that_hangs_up_takes_its_family_along(shared: SharedServers) -> None:
    family, setup = Family(), shared.setup(FULL)
    url, before = shared.url(setup, "http"), Counter(outcomes(setup.home))
    headers = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        hello, ready, call = (json.loads(line) for line in lines(family.command).splitlines())
        answer = await http.post(url, json=hello)
        session = {
            "mcp-session-id": answer.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        await http.post(url, json=ready, headers=session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: http.post(url, json=call, headers=session))
            await until(lambda: family.runs, seconds=30)
            tasks.cancel_scope.cancel()
        await gone(family)
        recorded = Counter({("bash", "cancelled"): 1})
        await until(lambda: Counter(outcomes(setup.home)) - before == recorded)
