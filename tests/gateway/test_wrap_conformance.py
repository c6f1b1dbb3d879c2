"""The official suite and the everything-server of the official SDK: `wrap` between them changes nothing."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.stdio_bridge import bridged
from tests.conformance.test_conformance import SCENARIOS, Run, suite
from tests.support import official
from tests.support.process_layer import server_command

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not official.is_wanted(), reason="needs packages of npm and PyPI"),
]

SERVER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from mcp_everything_server.server import mcp; mcp.run()"
)

LEAST_PASSED = {"2025-11-25": 75, "2026-07-28": 115}
"""Checks that the server passes behind the bridge, which lacks what HTTP adds in each version."""


def outcomes(run: Run) -> dict[str, list[tuple[str, str]]]:
    """By scenario the checks, each with how it ended."""
    return {
        name: sorted((check["id"], check["status"]) for check in checks)
        for name, checks in run.checks.items()
    }


@pytest.mark.parametrize("version", SCENARIOS)
async def test_the_official_suite_finds_the_same_behind_wrap(
    version: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    server = [sys.executable, "-c", SERVER, str(official.everything_server())]
    wrap = [*server_command(), "wrap", "--name", "every", "--state-dir", str(tmp_path / "state"), "--"]
    found = dict[str, Run]()
    for name, command in (("alone", server), ("wrapped", [*wrap, *server])):
        async with bridged(command) as url:
            words = ("--suite", "all", "--spec-version", version)
            found[name] = await suite(url, tmp_path / name, *words, seconds=280)
    alone, wrapped = (outcomes(run) for run in found.values())
    passed = sum(status == "SUCCESS" for checks in alone.values() for _, status in checks)
    record_property(
        "summary", f"official suite behind wrap, {version}: {passed} checks pass with and without"
    )
    assert len(alone) == SCENARIOS[version]
    assert passed >= LEAST_PASSED[version]
    assert {name for name in alone if alone[name] != wrapped.get(name)} == set()
    assert wrapped.keys() == alone.keys()
