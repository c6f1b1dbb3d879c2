"""The tool Agent as a client sees it, in both protocol generations."""

import json
import threading
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError

from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities.permissions import Permission
from tests.agents.agents import HANDLE, Call, Says, model_api
from tests.protocol.resource_clients import ERAS, completed, listed, place, read, refusal
from tests.support.live import text
from tests.support.workbench import Person

EXAMPLE = {
    "description": "Find the rate",
    "prompt": "Where is the VAT rate set?",
    "subagent_type": "Explore",
}

SCRIPT = [Says("I look.", [Call(tool="ls")]), Says("All is well.")]
TASK = {"description": "look around", "prompt": "look"}


def settings(url: str) -> dict[str, Any]:
    """The settings of a server whose agents have the model at `url`."""
    return {"agent_provider": "openai", "agent_base_url": url, "agent_model": "scripted"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["Agent", "Task", "task"])
async def test_a_client_starts_an_agent_and_reads_its_conversation(
    era: str, name: str, tmp_path: Path
) -> None:
    with model_api({"look": SCRIPT}) as model:
        async with place(tmp_path, **settings(model.url)) as made, made.client(era) as client:
            assert "Agent" in {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool(name, TASK)
            assert not result.is_error
            assert text(result).startswith("All is well.\n[agent_")
            [uri] = [uri for uri in await listed(client) if uri.startswith("toolserver://agents/")]
            assert uri.endswith(HANDLE.findall(text(result))[0])
            found = json.loads(await read(client, uri))
            assert (found["status"], found["type"]) == ("finished", "general-purpose")
            assert [one["role"] for one in found["messages"]] == ["user", "agent", "tools", "agent"]
            assert found["messages"][0]["content"]["text"] == "look"
            templates = (await client.list_resource_templates()).resource_templates
            assert "toolserver://agents/{id}" in {one.uri_template for one in templates}


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_model_the_tool_is_not_listed_and_a_call_says_what_to_configure(
    era: str, tmp_path: Path
) -> None:
    async with place(tmp_path) as made, made.client(era) as client:
        assert "Agent" not in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("Agent", TASK)
        assert result.is_error
        assert "[agent]" in text(result)
        assert await refusal(client, "toolserver://agents/agent_000000000000")
        assert not [uri for uri in await listed(client) if "agents" in uri]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_follows_and_stops_agents_in_the_background(era: str, tmp_path: Path) -> None:
    never = threading.Event()
    scripts = {"look": SCRIPT, "wait": [Says("Too late.", after=never)]}
    try:
        with model_api(scripts) as model:
            async with place(tmp_path, **settings(model.url)) as made, made.client(era) as client:
                later = {**TASK, "run_in_background": True}
                started = HANDLE.findall(text(await client.call_tool("Agent", later)))[0]
                read = text(await client.call_tool("TaskOutput", {"task_id": started}))
                assert read.startswith("All is well.\n[agent_")
                assert "[finished; 2 turns, 30 tokens; next offset " in read
                waits = {**later, "prompt": "wait"}
                waiting = HANDLE.findall(text(await client.call_tool("Agent", waits)))[0]
                running = await client.call_tool("TaskOutput", {"task_id": waiting, "until": "now"})
                assert text(running).startswith("[running for ")
                stopped = await client.call_tool("TaskStop", {"task_id": waiting})
                assert text(stopped).startswith(f"{waiting}: stopped after ")
                unknown = await client.call_tool("TaskOutput", {"task_id": "agent_000000000000"})
                assert unknown.is_error
    finally:
        never.set()


@pytest.mark.parametrize("era", ERAS)
async def test_the_steps_of_an_agent_are_progress(era: str, tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    with model_api({"look": SCRIPT}) as model:
        async with place(tmp_path, **settings(model.url)) as made, made.client(era) as client:
            await client.call_tool("Agent", TASK, progress_callback=report)
    assert "look around: turn 2: calls ls" in heard


def sampler(asked: list[mcp.CreateMessageRequestParams]) -> dict[str, Any]:
    """The options of a client whose own model looks once."""

    async def answer(
        _: ClientRequestContext, params: mcp.CreateMessageRequestParams
    ) -> mcp.CreateMessageResult | mcp.CreateMessageResultWithTools:
        asked.append(params)
        if len(asked) > 1:
            return mcp.CreateMessageResult(role="assistant", content=mcp.TextContent(text="Seen."), model="m")
        call = mcp.ToolUseContent(id="1", name="ls", input={})
        return mcp.CreateMessageResultWithTools(
            role="assistant", content=[call], model="m", stop_reason="toolUse"
        )

    with_tools = mcp.SamplingCapability(tools=mcp.SamplingToolsCapability())
    return {"sampling_callback": answer, "sampling_capabilities": with_tools}


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_has_the_model_of_its_client_where_there_is_no_other(era: str, tmp_path: Path) -> None:
    asked: list[mcp.CreateMessageRequestParams] = []
    async with place(tmp_path) as made:
        server = mcp_server(made.app, only_client="local")
        async with Client(server, mode=era, read_timeout_seconds=20, **sampler(asked)) as client:
            result = await client.call_tool("Agent", TASK)
            assert text(result).startswith("Seen.\n[agent_")
            assert len(asked) == 2
            again = await client.call_tool("Agent", {**TASK, "run_in_background": True})
            assert again.is_error
            assert "Leave run_in_background out" in text(again)


async def test_an_agent_can_be_watched_and_its_address_completed(tmp_path: Path) -> None:
    with model_api({"look": SCRIPT}) as model:
        async with place(tmp_path, **settings(model.url)) as made, made.client() as client:
            handle = HANDLE.findall(text(await client.call_tool("Agent", TASK)))[0]
            await client.session.subscribe_resource(f"toolserver://agents/{handle}")
            with pytest.raises(MCPError):
                await client.session.subscribe_resource("toolserver://agents/agent_000000000000")
            assert await completed(client, "toolserver://agents/{id}", "agent_", "id") == [handle]


async def test_without_the_tool_there_are_no_addresses(tmp_path: Path) -> None:
    with model_api({}) as model:
        given = {"exclude_tools": ("Agent",), **settings(model.url)}
        async with place(tmp_path, **given) as made, made.client() as client:
            assert not [uri for uri in await listed(client) if "agents" in uri]
            templates = (await client.list_resource_templates()).resource_templates
            assert not [one for one in templates if "agents" in one.uri_template]
            assert await refusal(client, "toolserver://agents/agent_000000000000")


@pytest.mark.parametrize("era", ERAS)
async def test_the_conversation_of_another_client_is_not_found(era: str, tmp_path: Path) -> None:
    with model_api({"look": SCRIPT}) as model:
        async with place(tmp_path, **settings(model.url)) as made:
            name = mcp.Implementation(name="other", version="1")
            async with made.client(era) as client, made.client(era, client_info=name) as other:
                result = await client.call_tool("Agent", TASK)
                uri = f"toolserver://agents/{HANDLE.findall(text(result))[0]}"
                await read(client, uri)
                assert (await refusal(other, uri)).error.data == {"uri": uri}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"prompt": " "}, "prompt"),
        ({"description": ""}, "description"),
        ({"name": "a b"}, "name"),
        ({"mode": "sudo"}, "mode"),
        ({"mode": 7}, "mode"),
        ({"max_turns": 1001}, "max_turns"),
        ({"isolation": "container"}, "isolation"),
    ],
)
async def test_bad_arguments_are_named(tmp_path: Path, arguments: dict[str, Any], named: str) -> None:
    with model_api({}) as model:
        async with place(tmp_path, permission_mode=Permission.READ_ONLY, **settings(model.url)) as made:
            result = await made.app.dispatcher.call("Agent", {**TASK, **arguments}, Person())
            assert result.error == "invalid_input"
            assert f"- {named}" in result.text
