"""Finding tools by any name, and selecting them."""

import subprocess
import sys

import pytest
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import InvalidInput, RegistrationError, SettingsError, UnknownTool
from mcp_toolserver.pipeline.registry import Registry
from tests.support.generated import ENTRIES

REGISTRY = Registry(ENTRIES)
CORE = {"read_file", "write_file", "edit_file", "glob_search", "grep_search", "bash"}


NAMES = {
    "read_file": ("read_file", "Read", "read"), "write_file": ("Write", "write"),
    "edit_file": ("Edit", "edit"), "glob_search": ("Glob", "glob"),
    "grep_search": ("Grep", "grep", "search_code"), "bash": ("Bash", "shell"),
}  # fmt: skip


def test_a_tool_is_found_by_each_of_its_names_and_by_no_other() -> None:
    for canonical, names in NAMES.items():
        assert {REGISTRY.find(name).spec.name for name in names} == {canonical}
    for name in ("", "READ_FILE", "read-file", "nope", "__class__"):
        with pytest.raises(UnknownTool):
            REGISTRY.find(name)


def test_an_alias_brings_its_argument_names_and_units() -> None:
    assert REGISTRY.translate("Read", {"path": "a", "offset": 3}) == {"path": "a", "offset": 2}
    assert REGISTRY.translate("Read", {"offset": "3"}) == {"offset": 2}
    assert REGISTRY.translate("read_file", {"path": "a", "offset": 3}) == {"path": "a", "offset": 3}
    assert REGISTRY.translate("shell", {"command": "x", "timeout": 60})["timeout"] == 60_000
    assert REGISTRY.translate("Bash", {"command": "x", "timeout": 60})["timeout"] == 60
    # What has no unit is left for validation.
    values: list[JsonValue] = ["x", None, True, [60]]
    assert [REGISTRY.translate("shell", {"timeout": value})["timeout"] for value in values] == values


def test_one_argument_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        REGISTRY.translate("diff", {"a": "x", "path": "y"})


def test_two_owners_of_one_name_stop_the_start() -> None:
    with pytest.raises(RegistrationError, match="two tools"):
        Registry((*ENTRIES, ENTRIES[0]))


LOCKED = "read write edit glob grep bash todo web_search web_fetch task question skill tool_search"
"""The names that one of the source systems always has."""

LEVELS = {
    Permission.READ_ONLY: "read_file glob_search grep_search WebFetch WebSearch Skill ToolSearch Sleep "
    "SendUserMessage StructuredOutput",
    Permission.WORKSPACE_WRITE: "write_file edit_file TodoWrite NotebookEdit Config",
    Permission.DANGER_FULL_ACCESS: "bash Agent REPL PowerShell",
}
"""Those of another, by their permission."""


def test_the_profiles_are_nested() -> None:
    lean, default, everything = (REGISTRY.select([name], [], []) for name in ("lean", "default", "all"))
    assert CORE <= lean <= default <= everything == set(REGISTRY.entries)


@pytest.mark.requirement("CL-01..CL-19")
def test_tools_declare_the_permission_of_their_source() -> None:
    for level, names in LEVELS.items():
        assert {REGISTRY.find(name).spec.own_permission for name in names.split()} == {level}


@pytest.mark.requirement("CL-41", "GR-09..GR-21")
def test_default_lists_or_finds_the_locked_names_and_finds_nothing_else() -> None:
    listed = REGISTRY.select([], [], [])
    found = REGISTRY.unlisted([], [], [], listed=listed)
    names = " ".join((LOCKED, *LEVELS.values())).split()
    locked = {REGISTRY.find(name).spec.name for name in names}
    assert found == locked - listed
    assert {"Agent", "Skill", "ToolSearch", "ls"} <= listed
    # What the operator named is exactly what there is.
    for asked in ((["files"], []), ([], ["Read"]), (["plan"], ["Read"]), (["all"], [])):
        assert not REGISTRY.unlisted(*asked, [], listed=REGISTRY.select(*asked, []))
    assert "Config" in REGISTRY.unlisted(["default"], ["tail"], [], listed=listed)
    assert REGISTRY.unlisted([], [], ["AskUser"], listed=listed) == found - {"AskUserQuestion"}


def test_with_lean_everything_else_can_be_called_but_what_is_excluded() -> None:
    listed = REGISTRY.select(["lean"], ["git_log"], [])
    unlisted = REGISTRY.unlisted(["lean"], ["git_log"], ["Bash", "curl"], listed=listed)
    assert "git_log" in listed
    assert unlisted == set(REGISTRY.entries) - listed - {"bash", "curl"}


def test_names_alone_select_just_those_with_toolsets_they_add_and_an_exclusion_beats_everything() -> None:
    assert "bash" not in REGISTRY.select(["all"], ["bash"], ["Bash"])
    assert REGISTRY.select([], [], []) == REGISTRY.select(["default"], [], [])
    assert REGISTRY.select([], ["Read"], []) == {"read_file"}
    assert REGISTRY.select(["shell"], ["Read"], []) == REGISTRY.select(["shell"], [], []) | {"read_file"}


def test_an_unknown_choice_stops_the_start_and_names_the_choices() -> None:
    for arguments in ((["nope"], [], []), ([], ["nope"], []), ([], [], ["nope"])):
        with pytest.raises(SettingsError, match=r"choose from .*(bash|lean)"):
            REGISTRY.select(*arguments)


def test_a_tool_loads_nothing_of_what_is_above_it() -> None:
    """`tool_spec` names the classes behind `rt` for the type checker only."""
    loaded = (
        "import sys, mcp_toolserver.tool; print(*(m for m in sys.modules if m.startswith('mcp_toolserver.')))"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, encoding="utf-8", check=True)
    layers = {name.split(".")[1] for name in done.stdout.split()}
    assert layers <= {"capabilities", "errors", "text", "tool", "tool_spec"}
