"""`lean` and `default` on a whole server: tools that are not listed are found and called all the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.resource_clients import commanding
from tests.support.live import text

CORE = {"bash", "edit_file", "glob_search", "grep_search", "read_file", "write_file"}


@pytest.mark.requirement("DA-58", "GR-31")
async def test_a_tool_is_found_then_called_by_its_name_or_through_another_unless_it_is_excluded(
    tmp_path: Path,
) -> None:
    chosen = {"toolsets": ("lean",), "exclude_tools": ("tail",)}
    async with commanding(tmp_path, **chosen) as made, made.client() as client:
        made.write("a.txt", "one\ntwo\n")
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
        nothing = text(await client.call_tool("ToolSearch", {"query": "select:tail"}))
        assert "No tool here is called tail" in nothing


FOUND: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("question", {"questions": [{"question": "why?"}]}, "No human can be asked"),
    ("Brief", {"message": "It is done."}, "It is done."),
    ("Config", {"key": "permissions.defaultMode"}, "danger-full-access"),
    ("Config", {"setting": "language"}, "denied here by the rule"),
    ("StructuredOutput", {"answer": 42}, "42"),
    ("Sleep", {"duration_ms": 1}, "switched off"),
    ("git_log", {}, "switched off"),
    ("read_clipboard", {}, "switched off"),
    ("CronList", {}, "switched off"),
)
"""What is called with `default`, and what the answer has; `Sleep` is excluded, `language` denied."""


@pytest.mark.requirement("CL-15..CL-17", "CL-41", "CL-50", "CL-52", "GR-19..GR-21", "GR-30")
async def test_default_announces_skills_and_runs_the_locked_tools_that_it_does_not_list(
    tmp_path: Path,
) -> None:
    skill = "---\ndescription: Cut it\n---\nDo."
    chosen = {
        "toolsets": ("default",),
        "exclude_tools": ("Sleep",),
        "deny": ("Config(language)",),
    }
    (root := tmp_path / "root/.agents/skills/release").mkdir(parents=True)
    (root / "SKILL.md").write_text(skill, encoding="utf-8")
    async with commanding(tmp_path, **chosen) as made, made.client() as client:
        tools = {tool.name: str(tool.description) for tool in (await client.list_tools()).tools}
        assert {"CallTool", "NotebookEdit", "REPL", "Skill", "ToolSearch", "WebSearch"} <= tools.keys()
        assert not {"Agent", "AskUserQuestion", "Config", "SendUserMessage", "git_log"} & tools.keys()
        assert tools["Skill"].endswith("\n- release: Cut it")
        assert "Do." in text(await client.call_tool("skill", {"skill": "release"}))
        assert "AskUserQuestion" in text(await client.call_tool("tool_search", {}))
        wrong: list[str] = []
        for name, arguments, expected in FOUND:
            for tool, given in ((name, arguments), ("CallTool", {"name": name, "arguments": arguments})):
                if expected not in (answer := text(await client.call_tool(tool, given))):
                    wrong.append(f"{tool} {name}: {answer}")
        assert wrong == []
