"""Prompts, and the completion of arguments: what may not be known is not proposed. And tools that `lean` and
`default` do not list are found and called all the same.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp.shared.exceptions import MCPError

from mcp_toolserver.capabilities.user import Question
from mcp_toolserver.errors import NobodyToAsk
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.protocol.resources.source import Source, Visitor
from mcp_toolserver.runtime.executables import HostExecutables, find_host_executables
from mcp_toolserver.text.prompts import PROMPTS
from tests.protocol.resource_clients import ERAS, commanding, completed, place
from tests.support.confinement import git
from tests.support.live import text
from tests.support.processes import broker

ARGUMENTS = {
    "review-changes": {"base": "main", "path": "src"},
    "explain-code": {"path": "src/a.py", "question": "why twice?"},
    "plan-change": {"goal": "make it fast", "path": "src"},
}

eras = pytest.mark.parametrize("era", ERAS)


def words(result: mcp.GetPromptResult) -> str:
    (message,) = result.messages
    assert message.role == "user"
    return getattr(message.content, "text", "")


@eras
async def test_a_prompt_says_what_was_asked_or_is_a_protocol_error(era: str, tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client(era) as client:
        listed = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in listed] == list(ARGUMENTS)
        for prompt in listed:
            assert prompt.title
            assert all(argument.description for argument in prompt.arguments or ())
            given = ARGUMENTS[prompt.name]
            assert list(given) == [argument.name for argument in prompt.arguments or ()]
            said = words(await client.get_prompt(prompt.name, given))
            assert all(value in said for value in given.values())
            assert len(said) < 1_000
        # What is put into one hides nothing.
        said = words(await client.get_prompt("explain-code", {"path": "a\u202e\x1b[8m"}))
        assert "a\\u{202e}\\u{1b}[8m" in said
        for name, given, why in NOT_GIVEN.values():
            with pytest.raises(MCPError, match=why) as refused:
                await client.get_prompt(name, given)
            assert refused.value.error.code == mcp.INVALID_PARAMS


def test_a_prompt_names_only_tools_that_there_are_and_git_before_the_shell() -> None:
    names = {entry.spec.name for entry in discover()}
    for prompt, there in product(PROMPTS, (names, {"read_file", "glob_search", "grep_search"})):
        for given in (ARGUMENTS[prompt.name], dict.fromkeys(ARGUMENTS[prompt.name], "")):
            said = prompt.words(given, there.__contains__)
            named = {name for name in names if name in said.replace(",", " ").replace("(", " ").split()}
            assert named <= there, prompt.name
    review = PROMPTS[0]
    assert "git_diff with commit main" in review.words({"base": "main"}, lambda _: True)
    assert "git diff main, with bash" in review.words({"base": "main"}, {"bash"}.__contains__)
    assert "git diff HEAD, with bash" in review.words({}, {"bash"}.__contains__)
    assert "ask the user" in review.words({}, lambda _: False)


NOT_GIVEN: Mapping[str, tuple[str, dict[str, str], str]] = {
    "no such prompt": ("nothing", {}, "no such prompt"),
    "without what it needs": ("explain-code", {}, "path is required"),
    "with nothing in what it needs": ("plan-change", {"goal": " "}, "goal is required"),
    "with what it does not take": ("explain-code", {"path": "a", "x": "y"}, "no argument 'x'"),
    "with too much": ("explain-code", {"path": "a" * 4_001}, "4000 characters"),
}


class Script(Source):
    """Prompts of a test."""

    def prompts(self) -> Sequence[mcp.Prompt]:
        return [mcp.Prompt(name="mine")]

    async def get_prompt(self, params: mcp.GetPromptRequestParams, _: Visitor) -> mcp.GetPromptResult | None:
        content = mcp.TextContent(type="text", text="my words")
        message = mcp.PromptMessage(role="user", content=content)
        return mcp.GetPromptResult(messages=[message]) if params.name == "mine" else None

    async def complete(self, name: str, _: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        if name != "mine":
            return None
        await visitor.tell("a word")
        await visitor.report("a word")
        with pytest.raises(NobodyToAsk):
            await visitor.elicit([Question(text="why?")])
        return [f"{value}{number}" for number in range(150)]


async def test_extra_prompts_join_the_servers_own(tmp_path: Path) -> None:
    async with place(tmp_path, extra={"sources": (Script(),)}) as made, made.client("auto") as client:
        assert [one.name for one in (await client.list_prompts()).prompts] == [*ARGUMENTS, "mine"]
        assert words(await client.get_prompt("mine")) == "my words"
        reference = mcp.PromptReference(name="mine")
        found = (await client.complete(reference, {"name": "x", "value": "v"})).completion
        assert found.values == [f"v{number}" for number in range(100)]
        assert (found.total, found.has_more) == (150, True)


async def test_paths_are_proposed_as_far_as_they_may_be_known(tmp_path: Path) -> None:
    async with place(tmp_path, deny=("read_file(secret*)",)) as made, made.client() as client:
        unknown = ("secret/a", "secrets.txt", "odd\nname")
        for name in ("src/main.py", "src/many.py", "src/deep/x", ".env", *unknown):
            made.write(name, "")
        (made.root / "link").symlink_to("src")
        root = str(made.root)[1:]
        assert await completed(client, "explain-code", "") == ["src/"]
        assert await completed(client, "explain-code", "src/ma") == ["src/main.py", "src/many.py"]
        assert await completed(client, "explain-code", "src/d") == ["src/deep/"]
        assert await completed(client, "explain-code", ".e") == [".env"]
        for path in ("secret", "secret/", "nothing/", "../", "/etc/", "/", "src/main.py/"):
            assert await completed(client, "plan-change", path) == []
        assert await completed(client, "plan-change", f"/{root}/src/many") == [f"/{root}/src/many.py"]
        assert await completed(client, "plan-change", "x", "goal") == []
        assert await completed(client, "plan-change", "x", "nothing") == []
        assert await completed(client, "file:///{+path}", "") == [f"{root}/"]
        assert await completed(client, "file:///{+path}", root) == [f"{root}/"]
        assert await completed(client, "file:///{+path}", f"/{root}/s") == [f"{root}/src/"]
        assert await completed(client, "file:///{+path}", f"{root}/src/main") == [f"{root}/src/main.py"]
        assert await completed(client, "file:///{+path}", "etc/") == []


async def test_what_is_not_there_cannot_be_completed(tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client() as client:
        for reference in (
            mcp.PromptReference(name="nothing"),
            mcp.ResourceTemplateReference(uri="file:///{path}"),
            mcp.ResourceTemplateReference(uri="toolserver://todos"),
        ):
            with pytest.raises(MCPError, match="no such") as refused:
                await client.complete(reference, {"name": "path", "value": ""})
            assert refused.value.error.code == mcp.INVALID_PARAMS


async def test_outputs_are_proposed_to_whose_they_are(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made, made.client() as client:
        link: Any = (await client.call_tool("bash", {"command": "seq 100000"})).content[-1]
        handle = link.uri.rpartition("/")[2]
        assert await completed(client, "toolserver://output/{id}", "", "id") == [handle]
        assert await completed(client, "toolserver://output/{id}", "x", "id") == []
        async with made.client() as other:
            assert await completed(other, "toolserver://output/{id}", "", "id") == []


async def test_branches_are_proposed_where_there_is_a_tool_for_git(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    git(root, "branch", "feature/one")
    found = find_host_executables({"PATH": "/usr/bin:/bin"}, (str(root),))
    with broker("danger-full-access", *found.helpers) as started:
        async with place(tmp_path, at=started, found=found) as made, made.client() as client:
            assert sorted(await completed(client, "review-changes", "", "base")) == ["feature/one", "main"]
            assert await completed(client, "review-changes", "fe", "base") == ["feature/one"]
        (root / ".git").rename(root / "no-git")
        async with place(tmp_path, at=started, found=found) as made, made.client() as client:
            assert await completed(client, "review-changes", "", "base") == []
    async with place(tmp_path, found=HostExecutables()) as made, made.client() as client:
        assert await completed(client, "review-changes", "", "base") == []


DECLARED = {"claude-code": False, "local-agent-mode-x": False, "claude-ai": True, "codex-mcp-client": True}


@eras
async def test_completion_is_not_declared_to_clients_that_would_lose_tools(era: str, tmp_path: Path) -> None:
    async with place(tmp_path) as made:
        for name, declared in DECLARED.items():
            async with made.client(era, client_info=mcp.Implementation(name=name, version="1")) as client:
                capabilities: Any = client.server_capabilities
                assert (capabilities.completions is not None) is declared, name
                assert capabilities.tools is not None
                assert await completed(client, "explain-code", "") == []


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
