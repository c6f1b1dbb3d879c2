"""The server's tools in the process of another program: the same tools under the same mode, ended with it.

Hooks of a `ToolContext` are around them and around those of the library, whose examples in the docs work.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.app.toolset import Toolset
from mcp_toolserver.custom_tools import (
    Denied,
    ToolContext,
    ToolRegistry,
    ToolResult,
    Unavailable,
    assemble_tool_pool,
    define_tool,
    tool_specs,
)
from mcp_toolserver.errors import SettingsError
from tests import ROOT
from tests.custom_tools.test_library import CONTEXT
from tests.support.live import MODES, Setup, connected, text
from tests.web.web import Reply, site


def toolset(folder: Path, mode: str, **settings: Any) -> Toolset:
    (folder / "root").mkdir(exist_ok=True)
    return Toolset(mode=mode, roots=[folder / "root"], state_dir=str(folder / "state"), **settings)


def registry_of(tools: Toolset) -> ToolRegistry:
    own = define_tool("own", "Mine.", lambda _: 1, is_read_only=True)
    return ToolRegistry({tool.name: tool for tool in assemble_tool_pool(tools, custom=[own])})


ASKS = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
DOES: tuple[tuple[str, str, dict[str, Any], str, bool], ...] = (
    ("read-only", "read_file", {"path": "a.txt"}, "1\tone", True),
    ("read-only", "bash", {"command": "touch new"}, "Read-only file system", True),
    ("read-only", "AskUserQuestion", ASKS, "No human can be asked here", False),
    ("read-only", "write_file", {"path": "new", "content": "x"}, "Unknown tool: write_file", False),
    ("workspace-write", "write_file", {"path": "b.txt", "content": "x"}, "Created b.txt", True),
    ("workspace-write", "write_file", {"path": "../c.txt", "content": "x"}, "outside the workspace", False),
    ("workspace-write", "bash", {"command": "echo x > d.txt; touch /usr/e.txt"}, "cannot touch", True),
    ("workspace-write", "read_file", {"path": "secret.txt"}, "denied here by the rule", False),
    ("workspace-write", "read_file", {"path": 5}, "read_file cannot use these arguments", False),
    ("workspace-write", "own", {}, "1", True),
    ("danger-full-access", "bash", {"command": "touch ../f.txt && echo done"}, "done", True),
)
"""Mode, call, part of the text, and whether it is a success."""


@pytest.mark.requirement("TU-22", "CL-42", "SW-89", "DA-43")
async def test_toolsets_of_every_mode_keep_it_in_one_process(tmp_path: Path) -> None:
    rules = {"deny": ["read_file(secret*)"]}
    async with (
        toolset(tmp_path, "read-only", toolsets=["default", "talk"]) as reading,
        toolset(tmp_path, "workspace-write", rules=rules) as writing,
        toolset(tmp_path, "danger-full-access") as full,
    ):
        for name in ("a.txt", "secret.txt"):
            (tmp_path / "root" / name).write_text("one\n", encoding="utf-8")
        opened = tuple(map(registry_of, (reading, writing, full)))
        wrong: list[object] = []
        for mode, name, arguments, says, succeeds in DOES:
            result = await opened[MODES.index(mode)].execute(name, json.dumps(arguments), CONTEXT)
            if says not in result.text or succeeds != (result.error is None):
                wrong.append((mode, name, result))
        assert not wrong
        # It does not pretend to confine this process.
        assert "nothing (server)" in reading.enforcement
    left = {path.name for path in tmp_path.rglob("*.txt")}
    assert left == {"a.txt", "secret.txt", "b.txt", "d.txt", "f.txt"}


@pytest.mark.requirement("TU-22", "SW-89", "CL-48")
async def test_definitions_and_answers_are_those_of_a_server(tmp_path: Path) -> None:
    setting, specs = Setup.below(tmp_path, "workspace-write"), {spec.name for spec in tool_specs()}
    (setting.root / "a.txt").write_text("one\n" * 5000, encoding="utf-8")
    (setting.root / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1")
    # The description of Skill names it.
    (skill := setting.root / ".agents/skills/x").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: x\ndescription: Do x.\n---\nx", encoding="utf-8")
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("read_file", {"file_path": "a.txt", "limit": 2}),
        ("read_file", {"path": "dot.png"}),
        ("bash", {"command": "seq 3; exit 4"}),
        ("grep_search", {"pattern": "(", "path": "."}),
        ("ls", {"path": "/etc"}),
    )
    async with connected(setting) as client, toolset(tmp_path, "workspace-write", toolsets=["all"]) as tools:
        registry, extra = registry_of(tools), {"meta", "icons", "output_schema"}
        ours = {str(tool["name"]): {**tool, "outputSchema": None} for tool in registry.to_mcp_tools()}
        for tool in (await client.list_tools()).tools:
            theirs = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=extra)
            assert ours.pop(tool.name, None) in ({**theirs, "outputSchema": None}, None)
        assert ours.keys() == {"own"}
        assert {tool.name for tool in tools} <= specs
        assert "- x: Do x." in registry.get("Skill").description
        for name, arguments in calls:
            there = await client.call_tool(name, arguments)
            here = await registry.execute(name, arguments, CONTEXT)
            assert (here.text, here.error is not None) == (text(there), there.is_error)
            assert len(here.images) == len([one for one in there.content if one.type == "image"])
            assert bool(here.images) == ("dot.png" in arguments.values())


def children() -> set[str]:
    files = Path("/proc/self/task").glob("*/children")
    return {child for file in files for child in file.read_text(encoding="utf-8").split()}


@pytest.mark.requirement("TU-22")
async def test_the_end_ends_what_it_started_and_it_can_be_opened_again(tmp_path: Path) -> None:
    before, tools, beat = children(), toolset(tmp_path, "workspace-write"), tmp_path / "root/beat"
    script = {"command": "while sleep 0.02; do date +%N > beat; done", "run_in_background": True}
    with pytest.raises(Unavailable):
        iter(tools)
    for _ in range(2):
        async with tools:
            registry = registry_of(tools)
            assert (await registry.execute("bash", json.dumps(script), CONTEXT)).error is None
            with anyio.fail_after(20):
                while not beat.exists():
                    await anyio.sleep(0.01)
            assert len(children()) == len(before) + 1
            with pytest.raises(RuntimeError):
                await tools.__aenter__()
        assert children() == before
        beat.unlink()
        assert "not open" in (await registry.execute("ls", {}, CONTEXT)).text
        assert not beat.exists()


async def test_what_no_toolset_can_be_is_refused_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}-state")
    before = children()
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"mode": "root"}, "permission-mode"),
        ({"roots": []}, "no folder"),
        ({"permission_mode": "danger-full-access"}, "as mode"),
        ({"permission_modes": "read-only"}, "unknown key 'permission-modes'"),
        ({"transport": "http"}, "unknown key 'transport'"),
        ({"rules": {"denied": []}}, "unknown key 'denied'"),
        ({"state_dir": str(tmp_path / "state")}, "lies inside the root"),
        ({"sandbox": "off"}, "--sandbox off"),
        # A sandbox that lies in the root is none.
        ({"mode": "workspace-write", "roots": [sys.prefix], "sandbox": "required"}, "cannot be confined"),
        ({"toolsets": ["nope"]}, "unknown toolset"),
    )
    for changes, says in wrong:
        given = {"mode": "read-only", "roots": [tmp_path], **changes}
        with pytest.raises(SettingsError, match=says):
            await Toolset(**given).__aenter__()
    assert children() == before


PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def context(**hooks: Any) -> ToolContext:
    return ToolContext.model_validate({"working_directory": "/tmp", "session_id": "1", "hooks": hooks})


def specific(**output: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": output}


def change(given: dict[str, Any]) -> Any:
    changed: dict[str, Any] = {"bad": {"path": 5}, "worse": {"nope": 1}, "good": {"path": "better"}}
    path = given["tool_input"]["path"]
    return specific(updatedInput=changed[path]) if path in changed else None


async def refuse(given: dict[str, Any]) -> None:
    raise Denied(f"not {given['tool_input']['path']}")


def fail(given: dict[str, Any]) -> None:
    raise KeyError(given["tool_name"])


def leave(given: dict[str, Any]) -> None:
    raise SystemExit


@pytest.mark.requirement("SW-51")
async def test_hooks_of_a_context_deny_change_and_note_and_fail_closed() -> None:
    ran: list[str] = []

    def run(args: dict[str, Any], _: ToolContext) -> ToolResult:
        ran.append(args["path"])
        return ToolResult(output="found", error="it is broken" if args["path"] == "broken" else None)

    tools = ToolRegistry().register(define_tool("look", "Look.", run, PATH, is_read_only=True))
    note = {"PostToolUse": [lambda _: specific(additionalContext="look again")]}
    sad = {"PostToolUseFailure": [lambda given: {"decision": "block", "reason": given["error"]}]}
    before = "PreToolUse"
    for hooks, path, expected, runs in (
        ({before: [refuse]}, "a", (True, "not a"), []),
        ({before: [fail]}, "a", (True, "failed"), []),
        ({before: [leave]}, "a", (True, "failed"), []),
        ({before: [lambda _: True]}, "a", (True, "failed"), []),
        ({before: [lambda _: specific(permissionDecision="ask")]}, "a", (True, "nobody can be asked"), []),
        ({before: [change]}, "bad", (True, "cannot use these arguments"), []),
        ({before: [change]}, "worse", (True, "cannot use these arguments"), []),
        ({before: [change, refuse]}, "good", (True, "not better"), []),
        ({before: [change]}, "good", (False, "found"), ["better"]),
        ({**note, **sad}, "a", (False, "found\n[look again]"), ["a"]),
        ({**note, **sad}, "broken", (True, "broken\n[PostToolUseFailure hook 1: it is"), ["broken"]),
        ({"PostToolUse": [fail]}, "a", (False, "found\n[PostToolUse hook 1: it failed"), ["a"]),
    ):  # fmt: skip
        ran.clear()
        result = await tools.execute("look", {"path": path}, context(**hooks))
        is_error, says = expected
        assert (result.error is not None, says in result.text, ran) == (is_error, True, runs), result


@pytest.mark.requirement("SW-51")
async def test_a_toolset_decides_on_what_they_change_and_shows_them_canonical_paths(tmp_path: Path) -> None:
    seen: list[str] = []

    def redirect(given: dict[str, Any]) -> Any:
        seen.append(given["tool_input"]["path"])
        return specific(updatedInput={"path": "secret.txt"}) if seen[-1] == "b.txt" else None

    async with toolset(tmp_path, "read-only", rules={"deny": ["read_file(secret*)"]}) as tools:
        registry = ToolRegistry({tool.name: tool for tool in tools})
        for name in ("a.txt", "b.txt", "secret.txt"):
            (tmp_path / "root" / name).write_text("one\n", encoding="utf-8")
        for path, says in ((".//a.txt", "1\tone"), ("b.txt", "denied here by the rule")):
            result = await registry.execute("read_file", {"path": path}, context(PreToolUse=[redirect]))
            assert says in result.text
    assert seen == ["a.txt", "b.txt"]


PAGE = ROOT / "docs" / "library.md"
BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    examples = [code for language, title, code in BLOCKS if language == "python" and not title]
    assert len(examples) > 5
    namespace: dict[str, object] = {"__name__": "page"}
    for code in examples:
        exec(compile(code, str(PAGE), "exec"), namespace)


def test_the_servers_example_prints_what_the_page_says(tmp_path: Path) -> None:
    for _, title, content in BLOCKS:
        if title:
            (tmp_path / title).write_text(content, encoding="utf-8")
    (tmp_path / "work").mkdir()
    (console,) = [code for language, _, code in BLOCKS if language == "console"]
    command, expected = console.removeprefix("$ ").split("\n", 1)
    words = command.replace("mcp-toolserver", f"{sys.executable} -m mcp_toolserver", 1)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} --state-dir {tmp_path}/state"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


SAYS = (
    [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt"}},
        {"type": "tool_use", "id": "toolu_2", "name": "remember", "input": {"text": "it is short"}},
        {"type": "tool_use", "id": "toolu_3", "name": "bash", "input": {"command": "touch b.txt"}},
    ],
    [{"type": "text", "text": "It has one line."}],
)
"""What the model answers, turn by turn."""


@pytest.mark.requirement("TU-23", "CL-48", "TU-22", "SW-88")
async def test_the_model_loop_runs_until_the_model_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(reply: Reply) -> None:
        content = SAYS[len(json.loads(reply.asked.body)["messages"]) // 2]
        reply.say(json.dumps({"role": "assistant", "content": content}), kind="application/json")

    (root := tmp_path / "root").mkdir()
    (root / "a.txt").write_text("only this\n", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with site({"/v1/messages": turn}) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        converse = runpy.run_path(str(ROOT / "examples/model_loop.py"))["converse"]
        with anyio.fail_after(60):
            assert await converse(str(root), "What is in a.txt?") == "It has one line."
        sent = [json.loads(asked.body) for asked in api.asked]
    assert {"read_file", "grep_search", "bash", "remember"} <= {tool["name"] for tool in sent[0]["tools"]}
    texts = [result["content"] for result in sent[1]["messages"][-1]["content"]]
    assert texts[:2] == ["1\tonly this", f"Noted in {root}: it is short"]
    assert "Read-only file system" in texts[2]
