"""The tool Agent as a client sees it, in both protocol generations."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.agents.agents import HANDLE, Call, Request, Says, Script, model_api
from tests.protocol.resource_clients import ERAS, Place, completed, listed, place, read, refusal
from tests.support.live import text

EXAMPLE = {
    "description": "Find the rate",
    "prompt": "Where is the VAT rate set?",
    "subagent_type": "Explore",
}

SCRIPT = [Says("I look.", [Call(tool="ls")]), Says("All is well.")]
TASK = {"description": "look around", "prompt": "look"}


@asynccontextmanager
async def agent_client(
    folder: Path, era: str, scripts: Mapping[str, Script], **given: Any
) -> AsyncGenerator[tuple[Client, Place]]:
    """A client of a server whose agents' model follows `scripts`."""
    with model_api(scripts) as model:
        settings = {"agent_provider": "openai", "agent_base_url": model.url, "agent_model": "scripted"}
        async with place(folder, **settings, **given) as made, made.client(era) as client:
            yield client, made


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_starts_an_agent_and_reads_its_conversation(era: str, tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with agent_client(tmp_path, era, {"look": SCRIPT}) as (client, made):
        assert "Agent" in {tool.name for tool in (await client.list_tools()).tools}
        templates = (await client.list_resource_templates()).resource_templates
        assert "toolserver://agents/{id}" in {one.uri_template for one in templates}
        handles: set[str] = set()
        for name in ("Agent", "Task", "task"):
            result = await client.call_tool(name, TASK, progress_callback=report)
            assert not result.is_error
            assert text(result).startswith("All is well.\n[agent_")
            assert "look around: turn 2: calls ls" in heard
            heard.clear()
            handles.update(HANDLE.findall(text(result)))
        uris = {uri for uri in await listed(client) if uri.startswith("toolserver://agents/")}
        assert uris == {f"toolserver://agents/{handle}" for handle in handles}
        assert len(uris) == 3
        for uri in uris:
            found = json.loads(await read(client, uri))
            assert (found["status"], found["type"]) == ("finished", "general-purpose")
            assert [one["role"] for one in found["messages"]] == ["user", "agent", "tools", "agent"]
            assert found["messages"][0]["content"]["text"] == "look"
        # Agents can be watched, and their addresses completed.
        assert {*await completed(client, "toolserver://agents/{id}", "agent_", "id")} == handles
        if era == "legacy":
            await client.session.subscribe_resource(next(iter(uris)))
            with pytest.raises(MCPError):
                await client.session.subscribe_resource("toolserver://agents/agent_000000000000")
        name = mcp.Implementation(name="other", version="1")
        async with made.client(era, client_info=name) as other:
            for uri in uris:
                assert (await refusal(other, uri)).error.data == {"uri": uri}
        entries = "".join(file.read_text("utf-8") for file in (tmp_path / "state/audit").glob("*.jsonl"))
        assert entries.count('"tool":"Agent"') == 3, "reading one is no call of Agent"


@pytest.mark.requirement("GR-30")
async def test_types_and_skills_of_the_workspace_are_in_the_descriptions_of_their_tools(
    tmp_path: Path,
) -> None:
    hostile = "a\\nIGNORE \\u202e"
    deny = ("Agent(denied)", "Skill(denied)", "read_file(**/hidden/**)")
    async with agent_client(tmp_path, "auto", {}, deny=deny) as (client, made):
        for name, words in (("ann", hostile), ("denied", "d"), *((f"t{n}", "x" * 250) for n in range(20))):
            made.write(f".claude/agents/{name}.md", f'---\nname: {name}\ndescription: "{words}"\n---\nHelp.')
        for name in ("release", "denied", "hidden"):
            made.write(f".agents/skills/{name}/SKILL.md", '---\ndescription: "Cut\\n it\\e"\n---\nDo.')
        made.write(".agents/skills/mine/SKILL.md", "---\ndisable-model-invocation: true\n---\nDo.")
        tools = (await client.list_tools(cache_mode="bypass")).tools
        described = {tool.name: (tool.description or "").partition("\nFiles here add")[2] for tool in tools}
        assert described.pop("Skill") == ", in their own words:\n- release: Cut it\\u{1b}"
        lines = described.pop("Agent").splitlines()
        assert lines[1] == "- ann: a IGNORE \\u{202e}"
        assert (lines[-1], "denied" in str(lines)) == ("- and 14 more", False)
        assert sum(map(len, lines)) < 1_500
        assert not any(described.values())
        saved = {"name": "saved", "description": "Mine", "prompt": "Do."}
        assert not (await client.call_tool("save_skill", saved)).is_error
        assert (await client.list_tools(cache_mode="bypass")).tools == tools


@pytest.mark.requirement("GR-18")
async def test_without_a_model_the_tools_are_not_listed_and_a_call_says_what_to_configure(
    tmp_path: Path,
) -> None:
    for toolsets, era in (("all", "legacy"), ("default", "auto")):
        async with place(tmp_path, toolsets=(toolsets,)) as made, made.client(era) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert not names & {"Agent", "TeamCreate", "TeamDelete"}
            result = await client.call_tool("task", TASK)
            assert result.is_error
            assert "[agent]" in text(result)
            assert await refusal(client, "toolserver://agents/agent_000000000000")
            assert not [uri for uri in await listed(client) if "agents" in uri]


@pytest.mark.requirement("GR-18")
async def test_agents_of_a_default_server_have_no_tool_that_finds_others(tmp_path: Path) -> None:
    seen: list[Request] = []

    def look(request: Request) -> Says:
        seen.append(request)
        return Says("Done.")

    async with agent_client(tmp_path, "auto", {"look": look}, toolsets=()) as (client, _):
        assert text(await client.call_tool("task", TASK)).startswith("Done.")
        assert {"Agent", "Skill", "ls"} <= {*seen[0].tools}
        assert not {"ToolSearch", "CallTool", "Sleep"} & {*seen[0].tools}
