"""Nothing that a command starts outlives its call, its client or its server."""

import json
import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.support.families import eventually, outcomes
from tests.support.live import TOKEN, Setup, connected, serving

FAMILY = "setsid sh -c 'echo $$ > daemon; exec sleep 300' & (setsid sleep 300 & echo $! > grandchild) & wait"
"""A child that leaves its process group and session, and a grandchild that does."""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


def pids(root: Path) -> list[int]:
    found = [root / name for name in ("daemon", "grandchild")]
    return [int(path.read_text(encoding="ascii")) for path in found if path.exists() and path.stat().st_size]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def started(root: Path) -> None:
    """Wait until the whole family runs."""
    await eventually(lambda: len(pids(root)) == 2, seconds=30)
    assert all(map(alive, pids(root)))


async def gone(family: list[int]) -> None:
    """Within a second, as promised."""
    assert len(family) == 2
    await eventually(lambda: not any(map(alive, family)), seconds=1)


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_cancelled_call_takes_its_family_along(transport: str, era: str, setup: Setup) -> None:
    async with connected(setup, transport, era) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "bash", {"command": FAMILY})
            await started(setup.root)
            tasks.cancel_scope.cancel()
        await gone(pids(setup.root))
        assert "again" in str((await client.call_tool("bash", {"command": "echo again"})).content)
    # Either may be recorded first: a cancelled call ends when its family is gone.
    assert sorted(outcomes(setup.home)) == [("bash", "cancelled"), ("bash", "output")]


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


@pytest.fixture
def server(setup: Setup) -> Generator[subprocess.Popen[bytes]]:
    """A server with a call in flight, on bare pipes."""
    process = subprocess.Popen(
        setup.command,
        env=setup.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(lines(FAMILY))
    process.stdin.flush()
    yield process
    process.kill()
    process.communicate(timeout=10)


async def test_a_server_that_is_killed_takes_every_family_along(
    server: subprocess.Popen[bytes], setup: Setup
) -> None:
    await started(setup.root)
    server.send_signal(signal.SIGKILL)
    await gone(pids(setup.root))


async def test_a_handshake_http_client_that_hangs_up_takes_its_family_along(setup: Setup) -> None:
    with serving(setup, "http") as url:
        headers = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
            hello, ready, call = (json.loads(line) for line in lines(FAMILY).splitlines())
            answer = await http.post(url, json=hello)
            session = {
                "mcp-session-id": answer.headers["mcp-session-id"],
                "mcp-protocol-version": "2025-11-25",
            }
            await http.post(url, json=ready, headers=session)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: http.post(url, json=call, headers=session))
                await started(setup.root)
                tasks.cancel_scope.cancel()
            await gone(pids(setup.root))
            await eventually(lambda: outcomes(setup.home) == [("bash", "cancelled")])


def test_the_helpers_see_a_live_process() -> None:
    assert alive(os.getpid())
    assert not alive(2**22 + 1)
