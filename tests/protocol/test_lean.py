"""`--toolsets lean` on a real server: few tools are listed, the others are found and called all the same."""

import json
from pathlib import Path

from tests.support.live import Setup, connected, text

CORE = {"bash", "edit_file", "glob_search", "grep_search", "read_file", "write_file", "ToolSearch"}


def setup(folder: Path, *flags: str) -> Setup:
    made = Setup.below(folder, "danger-full-access", "--toolsets", "lean", *flags)
    (made.root / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    return made


async def test_a_tool_is_found_then_called_by_its_name_or_through_another(tmp_path: Path) -> None:
    async with connected(setup(tmp_path, "--tools", "CallTool")) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == CORE | {"CallTool"}
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
        assert record.structured_content


async def test_what_is_excluded_is_neither_found_nor_called(tmp_path: Path) -> None:
    async with connected(setup(tmp_path, "--exclude-tools", "head")) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == CORE
        assert "No tool here is called head" in text(
            await client.call_tool("ToolSearch", {"query": "select:head"})
        )
        refused = await client.call_tool("CallTool", {"name": "head", "arguments": {"path": "a.txt"}})
        assert refused.is_error
        assert "switched off" in text(refused)
