"""The official conformance suite against the shipped program: a process of its own, without fixtures.

Most scenarios call tools, resources or prompts that only `fixture_server` has. So the scenarios that pass are
listed, exactly: one that begins to fail fails this test, and one that begins to pass is added here.
"""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.conformance.fixture_server import doorman
from tests.conformance.test_conformance import SCENARIOS, Run, suite
from tests.support import live
from tests.support.live import TOKEN, Setup

PASSING = {
    "2025-11-25": {
        "dns-rebinding-protection",
        "logging-set-level",
        "ping",
        "prompts-list",
        "resources-list",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "tools-list",
    },
    "2026-07-28": {
        "caching",
        "dns-rebinding-protection",
        "http-header-validation",
        "prompts-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-sse-multiple-streams",
        "tools-list",
        # They take any error for an answer, also that there is no such tool.
        "input-required-result-ignore-extra-params",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",
    },
}
"""By protocol version."""


@asynccontextmanager
async def shipped(folder: Path) -> AsyncGenerator[str]:
    """The server's own process; gives an address at which no token is needed."""
    with socket.create_server(("127.0.0.1", 0)) as outside:
        address = f"127.0.0.1:{outside.getsockname()[1]}"
        setup = Setup.below(folder, "read-only", "--allowed-host", address)
        with live.serving(setup, "http") as url:
            async with doorman(outside, httpx.URL(url).port or 80, TOKEN):
                yield f"http://{address}/mcp"


def passed(run: Run) -> set[str]:
    """The scenarios in which something was checked and nothing failed."""
    return {
        name
        for name, checks in run.checks.items()
        if any(check["status"] == "SUCCESS" for check in checks)
        and not any(check["status"] == "FAILURE" for check in checks)
    }


@pytest.mark.parametrize("version", [pytest.param("2026-07-28", marks=pytest.mark.long), "2025-11-25"])
async def test_the_shipped_program_passes_what_it_can(
    version: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with shipped(tmp_path) as url:
        run = await suite(url, tmp_path / "found", "--suite", "all", "--spec-version", version)
    found = passed(run)
    record_property("summary", f"official suite, the shipped program, {version}: {len(found)} scenarios pass")
    assert len(run.checks) == SCENARIOS[version]
    assert found == PASSING[version]
