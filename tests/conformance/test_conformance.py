"""The official conformance suite, both eras and tasks, and what the MCP Inspector says of the schemas of all
tools; nothing is expected to fail.

Most scenarios call tools, resources or prompts that only `fixture_server` has. Of those that pass without it
the list is exact: one that begins to fail fails its test, and one that begins to pass is added.
"""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import mcp_types as mcp
import pytest
import pytest_asyncio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.protocol import translate
from tests.conformance.asking import Context
from tests.conformance.fixture_server import doorman, serving
from tests.skills.skilled import skill
from tests.support import live
from tests.support.official import node

SUITE = ("@modelcontextprotocol/conformance", "dist/index.js")

SCENARIOS = {"2025-11-25": 33, "2026-07-28": 40}
"""How many the suite has for each era; a version with others is looked at before it is taken."""

WARNINGS = {
    "2025-11-25": {"server-sse-priming-event", "server-sse-retry-field"},
    "2026-07-28": set[str](),
}
"""What the suite advises and this server does not do: it keeps no events for a client that comes back for
them, because it cancels a call whose client has gone."""

TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-status-notifications",
    "tasks-wire-fields",
)
UNWRITTEN = {"tasks-status-notifications"}
"""Scenarios in which this version of the suite checks nothing yet."""

SKILLS = ("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest")

UNLISTED = {"sep-2640-skillmd-metadata-name", "sep-2640-skillmd-metadata-description"}
"""What the suite would check in resources/list, where this server lists no files of skills."""

AT_ONCE = 3
"""Half of a scenario of tasks is waiting."""


@dataclass(frozen=True, kw_only=True)
class Run:
    status: int
    said: str
    checks: Mapping[str, Sequence[Mapping[str, Any]]]
    """By scenario."""

    @property
    def summary(self) -> str:
        return self.said.partition("=== SUMMARY ===")[2].strip()

    @property
    def last_line(self) -> str:
        """What is said at the end of a run of one scenario."""
        return self.said.strip().splitlines()[-1]

    def ids(self, status: str) -> set[str]:
        """The checks that ended so."""
        found = [check for checks in self.checks.values() for check in checks]
        return {check["id"] for check in found if check["status"] == status}


@pytest_asyncio.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    async with serving(tmp_path) as address:
        yield address


async def suite(url: str, folder: Path, *words: str, seconds: float = 120) -> Run:
    """Run the suite; what it found is written to `folder`."""
    folder.mkdir()
    process = await asyncio.create_subprocess_exec(
        *node(*SUITE), "server", "--url", url, "--output-dir", str(folder), *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        with anyio.fail_after(seconds):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Run(status=process.returncode, said=said.decode(), checks=checks_in(folder))


def checks_in(folder: Path) -> dict[str, list[Mapping[str, Any]]]:
    return {
        re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*", "", found.parent.name): json.loads(found.read_text("utf-8"))
        for found in folder.glob("*/checks.json")
    }


@pytest.mark.long
@pytest.mark.parametrize("version", SCENARIOS)
async def test_the_official_suite_passes(
    version: str, url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    run = await suite(url, tmp_path / "found", "--suite", "all", "--spec-version", version)
    record_property("summary", f"official suite, {version}\n{run.summary}")
    assert run.status == 0, run.summary
    assert len(re.findall(r"^✓ ", run.summary, re.MULTILINE)) == SCENARIOS[version], run.summary
    assert re.search(r"^Total: [1-9]\d* passed, 0 failed$", run.summary, re.MULTILINE), run.summary
    assert run.ids("FAILURE") == set()
    assert run.ids("WARNING") == WARNINGS[version]
    # The fixtures ran in the server's dispatcher, which keeps a record.
    called = {line["tool"] for line in recorded(tmp_path / "state")}
    assert {"test_simple_text", "test_image_content", "test_audio_content"} <= called


def recorded(state: Path) -> list[Mapping[str, Any]]:
    files = (state / "audit").glob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.mark.long
async def test_the_official_suite_passes_for_tasks(
    url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    places = anyio.Semaphore(AT_ONCE)

    async def scenario(name: str) -> Run:
        async with places:
            return await suite(url, tmp_path / name, "--scenario", name)

    runs = dict(zip(TASKS, await asyncio.gather(*map(scenario, TASKS)), strict=True))
    lines = [f"{name}: {runs[name].last_line}" for name in TASKS]
    record_property("summary", "\n".join(("official suite, tasks", *lines)))
    assert {name: run.said for name, run in runs.items() if run.status != 0} == {}, lines
    assert {name for name, run in runs.items() if run.ids("FAILURE") | run.ids("WARNING")} == set(), lines
    assert {name for name, run in runs.items() if not run.ids("SUCCESS")} == UNWRITTEN, lines


@pytest.mark.long
async def test_the_official_suite_passes_for_skills(
    url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    for name in ("alpha", "beta"):
        folder = tmp_path / "root/.agents/skills" / name
        (folder / "more").mkdir(parents=True)
        (folder / "SKILL.md").write_text(skill(name=name, description="It helps"), encoding="utf-8")
        (folder / "more/x.md").write_text("hello", encoding="utf-8")
    runs = {name: await suite(url, tmp_path / name, "--scenario", name) for name in SKILLS}
    lines = [f"{name}: {run.last_line}" for name, run in runs.items()]
    record_property("summary", "\n".join(("official suite, skills", *lines)))
    assert {name: run.status for name, run in runs.items()} == dict.fromkeys(SKILLS, 0)
    assert all(run.ids("FAILURE") == set() for run in runs.values())
    assert runs["sep-2640-skills-manifest"].ids("WARNING") == UNLISTED
    assert "sep-2640-resources-complete" in runs["sep-2640-skills-enumeration"].ids("SUCCESS")


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
"""By protocol version what passes without fixtures."""


@pytest.mark.parametrize("version", [pytest.param("2026-07-28", marks=pytest.mark.long), "2025-11-25"])
async def test_the_shipped_program_passes_what_it_can(
    version: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    words = ("--suite", "all", "--spec-version", version)
    with socket.create_server(("127.0.0.1", 0)) as outside:
        address = f"127.0.0.1:{outside.getsockname()[1]}"
        setup = live.Setup.below(tmp_path, "read-only", "--allowed-host", address)
        with live.serving(setup, "http") as url:
            async with doorman(outside, httpx.URL(url).port or 80, live.TOKEN):
                run = await suite(f"http://{address}/mcp", tmp_path / "found", *words)
    ended = {name: {check["status"] for check in checks} for name, checks in run.checks.items()}
    found = {name for name, ends in ended.items() if "SUCCESS" in ends and "FAILURE" not in ends}
    record_property("summary", f"official suite, the shipped program, {version}: {len(found)} scenarios pass")
    assert len(run.checks) == SCENARIOS[version]
    assert found == PASSING[version]


INSPECTOR = ("@modelcontextprotocol/inspector", "clients/cli/build/index.js")

ALL = [sys.executable, "-m", "tests.conformance.test_conformance"]


@pytest.mark.long
async def test_the_inspector_has_nothing_to_say_of_any_tool() -> None:
    process = await asyncio.create_subprocess_exec(
        *node(*INSPECTOR), "--cli", "--strict", "--method", "tools/list", "--", *ALL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        with anyio.fail_after(60):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, said.decode()) == (0, "")
    assert {tool["name"] for tool in json.loads(out)["tools"]} == {entry.spec.name for entry in discover()}


async def _listed(_: Context, __: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
    entries = Registry(discover()).entries.values()
    dear, beyond = Permission.DANGER_FULL_ACCESS, frozenset[Capability]()
    return mcp.ListToolsResult(tools=[translate.tool(entry, dear, beyond) for entry in entries])


async def _serve() -> None:
    server = Server[Any]("every-tool", on_list_tools=_listed)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
