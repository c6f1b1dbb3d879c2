"""Clients in strict mode send every argument: 0 and "" for those that they have no value for."""

from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    return Setup(root=tmp_path / "root", home=tmp_path, mode="danger-full-access")


async def test_a_call_with_every_optional_argument_empty_is_the_call_without_them(setup: Setup) -> None:
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


async def test_two_ways_to_name_a_thing_are_one_when_the_other_is_empty(setup: Setup) -> None:
    async with connected(setup) as client:
        added = await client.call_tool(
            "TodoWrite", {"todos": [{"content": "tidy up", "activeForm": ""}], "id": 0}
        )
        assert not added.is_error, text(added)
        edited = await client.call_tool(
            "edit_file",
            {
                "path": "file.txt",
                "old_string": "",
                "new_string": "",
                "edits": [{"old_string": "one", "new_string": "1"}],
            },
        )
        assert not edited.is_error, text(edited)
    assert (setup.root / "file.txt").read_text(encoding="utf-8") == "1\ntwo\nthree\n"


async def test_an_empty_argument_that_is_needed_is_still_an_error(setup: Setup) -> None:
    async with connected(setup) as client:
        for name, arguments in (
            ("read_file", {"path": ""}),
            ("head", {"path": "file.txt", "lines": -1}),
            ("edit_file", {"path": "file.txt", "old_string": "", "new_string": ""}),
        ):
            assert (await client.call_tool(name, arguments)).is_error, name
    assert (setup.root / "file.txt").read_text(encoding="utf-8") == "one\ntwo\nthree\n"
