"""Tasks with a prompt, which an agent runs, and task packets."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Failed
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry, Registry
from mcp_toolserver.runtime.host_services import HostServices
from mcp_toolserver.text.board import packet_errors
from mcp_toolserver.tool import Args, Field, Output, Runtime, ToolSpec
from tests.support.workshop import workshop
from tests.tasks.test_board import call, created, ended, task

PACKET: dict[str, Any] = {
    "objective": "Raise the rate to 20",
    "scope": "single_file",
    "scope_path": "src/shop.py",
    "repo": "shop",
    "branch_policy": "stay on main",
    "acceptance_tests": ["pytest -q", "the README names 20"],
    "commit_policy": "do not commit",
    "reporting_contract": "name the lines that changed",
    "escalation_policy": "stop if a test fails for another reason",
}
EXAMPLE = PACKET

Agent = Callable[[Any, Runtime], Awaitable[Output]]


class AgentArgs(Args):
    description: str = Field(description="What it is for")
    prompt: str = Field(description="What to do")


@asynccontextmanager
async def with_agent(folder: Path, agent: Agent) -> AsyncGenerator[Dispatcher]:
    """All tools, with `agent` as the tool Agent: what a model would do is scripted."""
    spec = ToolSpec(
        name="Agent",
        description="A scripted agent.",
        args=AgentArgs,
        run=agent,
        permission=Permission.READ_ONLY,
        needs=frozenset(),
        kind="other",
        subjects=lambda _: (),
    )
    async with workshop(folder) as server:
        others = [entry for name, entry in server.registry.entries.items() if name != "Agent"]
        host = server.host
        assert isinstance(host, HostServices)
        permissions = {**host.permissions, Capability.AGENTS: Permission.DANGER_FULL_ACCESS}
        providers = {**host.providers, Capability.AGENTS: lambda _: None}
        yield replace(
            server,
            registry=Registry((*others, Entry(spec, "agents"))),
            offered=server.offered | {"Agent"},
            without_model=frozenset(),
            host=replace(host, permissions=permissions, providers=providers),
        )


async def echo(args: AgentArgs, _: Runtime) -> Output:
    return Output(f"{args.description}: {args.prompt}")


async def test_a_prompt_runs_as_an_agent_with_the_messages_that_came_before(tmp_path: Path) -> None:
    async with with_agent(tmp_path, echo) as server:
        blocker = await created(server, subject="wait")
        name = await created(server, prompt="Look at a.py", description="Look", blocked_by=[blocker])
        await call(server, "TaskUpdate", task_id=name, message="And at b.py")
        await call(server, "TaskUpdate", task_id=blocker, status="completed")
        expected = "Look: Look at a.py\n\nAnd at b.py"
        assert await ended(server, name) == f"{expected}\n[completed; next offset {len(expected)}]"


async def test_a_running_agent_shows_its_progress_and_is_stopped_and_one_that_fails_fails_its_task(
    tmp_path: Path,
) -> None:
    begun, over = anyio.Event(), anyio.Event()

    async def work(args: AgentArgs, rt: Runtime) -> Output:
        if args.prompt == "fail":
            raise Failed("The model is gone.")
        try:
            await rt.report("step 1")
            begun.set()
            await anyio.sleep_forever()
        finally:
            over.set()
        raise AssertionError

    async with with_agent(tmp_path, work) as server:
        name = await created(server, prompt="fail")
        assert await ended(server, name) == "[failed: The model is gone; next offset 0]"
        name = await created(server, prompt="x")
        with anyio.fail_after(20):
            await begun.wait()
        live = await call(server, "TaskOutput", task_id=name, until="now")
        assert live.text.startswith("[running for ")
        assert live.text.endswith(" s: step 1; next offset 0]")
        stopped = await call(server, "TaskStop", task_id=name)
        assert stopped.text == f"{name}: cancelled: It was stopped with TaskStop; 0 bytes of output."
        assert over.is_set()


async def test_a_packet_becomes_a_task_with_a_prompt(tmp_path: Path) -> None:
    async with with_agent(tmp_path, echo) as server:
        made = task(await call(server, "RunTaskPacket", **PACKET))
        assert made["subject"] == PACKET["objective"]
        assert made["prompt"] == (
            "Objective: Raise the rate to 20\n"
            "Scope: single_file\n"
            "Path: src/shop.py\n"
            "Repository: shop\n"
            "Branch policy: stay on main\n"
            "Commit policy: do not commit\n"
            "What to report: name the lines that changed\n"
            "When to stop and report instead of going on: stop if a test fails for another reason\n"
            "Done when all of this succeeds:\n"
            "- pytest -q\n"
            "- the README names 20"
        )
        assert "completed" in await ended(server, made["task_id"])
        # All that is wrong with one is said at once.
        wrong = {**PACKET, "objective": " ", "scope": "galaxy", "acceptance_tests": ["a", ""], "repo": None}
        refused = await call(server, "RunTaskPacket", **wrong)
    assert refused.error == "invalid_input"
    assert (
        "objective must not be empty; repo must not be empty; "
        "scope must be one of workspace, module, single_file, custom; "
        "acceptance_tests[1] must not be empty"
    ) in refused.text


def test_a_packet_needs_each_part() -> None:
    changes: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({}, []),
        ({"scope": "custom", "scope_path": None}, []),
        ({"scope": "module", "scope_path": ""}, ["scope_path is required for scope module"]),
        ({"acceptance_tests": []}, ["acceptance_tests must name at least one test"]),
        # What is no packet is left to validation.
        ({"acceptance_tests": "pytest", "scope": 3}, []),
    )
    for change, errors in changes:
        assert packet_errors({**PACKET, **change}) == errors
    assert packet_errors("everything") == []
