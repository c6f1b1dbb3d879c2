"""Hooks of a `ToolContext`, around the tools of the library and those of a `Toolset`."""

from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.custom_tools import Denied, ToolContext, ToolRegistry, ToolResult, define_tool
from tests.custom_tools.test_toolset import toolset

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
