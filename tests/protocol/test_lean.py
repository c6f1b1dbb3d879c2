"""`lean` and `default` on a real server: tools that are not listed are found and called all the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import ERAS, Setup, connected, text

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
        nothing = text(await client.call_tool("ToolSearch", {"query": "select:tail"}))
        assert "No tool here is called tail" in nothing


FOUND: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("question", {"questions": [{"question": "why?"}]}, "No human can be asked"),
    ("Brief", {"message": "It is done."}, "It is done."),
    ("Config", {"key": "permissions.defaultMode"}, "workspace-write"),
    ("Config", {"setting": "language"}, "denied here by the rule"),
    ("StructuredOutput", {"answer": 42}, "42"),
    ("Sleep", {"duration_ms": 1}, "switched off"),
    ("git_log", {}, "switched off"),
    ("read_clipboard", {}, "switched off"),
    ("CronList", {}, "switched off"),
)
"""What is called with `default`, and what the answer has; `Sleep` is excluded, `language` denied."""


@pytest.mark.requirement("CL-15..CL-17", "CL-41", "CL-50", "CL-52", "GR-19..GR-21", "GR-30")
@pytest.mark.parametrize("era", ERAS)
async def test_default_announces_skills_and_runs_the_locked_tools_that_it_does_not_list(
    era: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[rules]\ndeny = ["Config(language)"]\n', encoding="utf-8")
    flags = ("--toolsets", "default", "--exclude-tools", "Sleep", "--config", str(config))
    setup = Setup.below(tmp_path, "workspace-write", *flags)
    skill = setup.root / ".agents/skills/release/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\ndescription: Cut it\n---\nDo.", encoding="utf-8")
    async with connected(setup, era=era) as client:
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
