"""`--toolsets lean` on a real server: few tools are listed, the others are found and called all the same."""

import json
from pathlib import Path

import pytest

from tests.support.live import Setup, connected, text

CORE = {"bash", "edit_file", "glob_search", "grep_search", "read_file", "write_file"}


@pytest.mark.requirement("DA-58", "GR-31")
async def test_a_tool_is_found_then_called_by_its_name_or_through_another_unless_it_is_excluded(
    tmp_path: Path,
) -> None:
    setup = Setup.below(tmp_path, "danger-full-access", "--toolsets", "lean", "--exclude-tools", "tail")
    (setup.root / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    async with connected(setup) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == CORE | {"CallTool", "ToolSearch"}
        found = text(await client.call_tool("ToolSearch", {"query": "first lines of a file"}))
        tools = [json.loads(line) for line in found.splitlines() if line.startswith("{")]
        (head,) = [tool for tool in tools if tool["name"] == "head"]
        assert head["inputSchema"]["required"] == ["path"]
        arguments = {"path": "a.txt", "lines": 1}
        by_name = await client.call_tool("head", arguments)
        by_proxy = await client.call_tool("CallTool", {"name": "head", "arguments": arguments})
        assert "one" in text(by_name)
        assert text(by_proxy) == text(by_name)
        todos = [{"content": "look", "activeForm": "looking", "status": "pending"}]
        record = await client.call_tool("CallTool", {"name": "TodoWrite", "arguments": {"todos": todos}})
        assert "look" in text(record)
        nothing = text(await client.call_tool("ToolSearch", {"query": "select:tail"}))
        assert "No tool here is called tail" in nothing
        refused = await client.call_tool("CallTool", {"name": "tail", "arguments": {"path": "a.txt"}})
        assert refused.is_error
        assert "switched off" in text(refused)
