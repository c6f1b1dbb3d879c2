"""Clients in strict mode send every argument: 0 and "" for those that they have no value for."""

from pathlib import Path
from typing import Any

from tests.support.live import Setup, connected, text

EMPTY = {"integer": 0, "number": 0, "string": ""}

CALLS: dict[str, dict[str, Any]] = {
    "ToolSearch": {"query": "read"},
    "bash": {"command": "echo done"},
    "git_log": {},
    "glob_search": {"pattern": "*.txt"},
    "grep_search": {"pattern": "two", "output_mode": "content"},
    "head": {"path": "file.txt"},
    "ls": {},
    "read_file": {"path": "file.txt"},
    "tail": {"path": "file.txt"},
    "tree": {},
}

EDIT = {"path": "file.txt", "old_string": "", "new_string": ""}

EMPTY_BESIDE_OTHERS: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("read_file", {"path": ""}, True),
    ("head", {"path": "file.txt", "lines": -1}, True),
    ("edit_file", EDIT, True),
    ("TodoWrite", {"todos": [{"content": "tidy up", "activeForm": ""}], "id": 0}, False),
    ("edit_file", {**EDIT, "edits": [{"old_string": "one", "new_string": "1"}]}, False),
)
"""An empty argument that is needed is an error; next to another way to say the same it is not."""


async def test_an_optional_argument_sent_empty_is_as_if_it_was_not_sent(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "danger-full-access")
    (setup.root / "file.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    async with connected(setup) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        for name, arguments in CALLS.items():
            properties = schemas[name]["properties"]
            optional = properties.keys() - schemas[name].get("required", []) - arguments.keys()
            empty = {one: EMPTY[kind] for one in optional if (kind := properties[one].get("type")) in EMPTY}
            assert empty, name
            plain = await client.call_tool(name, arguments)
            strict = await client.call_tool(name, {**arguments, **empty})
            assert text(strict) == text(plain), name
            assert strict.is_error == plain.is_error
        for name, arguments, fails in EMPTY_BESIDE_OTHERS:
            result = await client.call_tool(name, arguments)
            assert bool(result.is_error) is fails, (name, text(result))
    assert (setup.root / "file.txt").read_text(encoding="utf-8") == "1\ntwo\nthree\n"
