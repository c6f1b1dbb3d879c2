"""Finding tools by any name, and selecting them."""

import pytest

from mcp_toolserver.errors import InvalidInput, RegistrationError, SettingsError, UnknownTool
from mcp_toolserver.pipeline.registry import Registry, discover
from tests.support.generated import ENTRIES

REGISTRY = Registry(ENTRIES)
CORE = {"read_file", "write_file", "edit_file", "glob_search", "grep_search", "bash"}


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("read_file", "read_file"), ("Read", "read_file"), ("read", "read_file"), ("Write", "write_file"),
        ("write", "write_file"), ("Edit", "edit_file"), ("edit", "edit_file"), ("Glob", "glob_search"),
        ("glob", "glob_search"), ("Grep", "grep_search"), ("grep", "grep_search"),
        ("search_code", "grep_search"), ("Bash", "bash"), ("shell", "bash"),
    ],
)  # fmt: skip
def test_a_tool_is_found_by_each_of_its_names(name: str, canonical: str) -> None:
    assert REGISTRY.find(name).spec.name == canonical


@pytest.mark.parametrize("name", ["", "READ_FILE", "read-file", "nope", "__class__"])
def test_any_other_name_is_unknown(name: str) -> None:
    with pytest.raises(UnknownTool):
        REGISTRY.find(name)


def test_an_alias_brings_its_argument_names_and_units() -> None:
    assert REGISTRY.translate("Read", {"path": "a", "offset": 3}) == {"path": "a", "offset": 2}
    assert REGISTRY.translate("Read", {"offset": "3"}) == {"offset": 2}
    assert REGISTRY.translate("read_file", {"path": "a", "offset": 3}) == {"path": "a", "offset": 3}
    assert REGISTRY.translate("shell", {"command": "x", "timeout": 60})["timeout"] == 60_000
    assert REGISTRY.translate("Bash", {"command": "x", "timeout": 60})["timeout"] == 60


@pytest.mark.parametrize("value", ["x", None, True, [60]])
def test_a_value_that_has_no_unit_is_left_for_validation(value: object) -> None:
    assert REGISTRY.translate("shell", {"timeout": value})["timeout"] == value  # type: ignore[dict-item]


def test_one_argument_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        REGISTRY.translate("diff", {"a": "x", "path": "y"})


def test_discovery_is_sorted_and_stable() -> None:
    names = [entry.spec.name for entry in discover()]
    assert names == sorted(names) == [entry.spec.name for entry in discover()]


def test_two_owners_of_one_name_stop_the_start() -> None:
    with pytest.raises(RegistrationError, match="two tools"):
        Registry((*ENTRIES, ENTRIES[0]))


def test_the_profiles_are_nested() -> None:
    lean, default, everything = (REGISTRY.select([name], [], []) for name in ("lean", "default", "all"))
    assert CORE <= lean <= default | {"ToolSearch"} <= everything == set(REGISTRY.entries)


def test_a_selection_without_unlisted_tools_has_none_that_looks_for_them() -> None:
    default = REGISTRY.select(["default"], [], [])
    assert "ls" in default
    assert not {"ToolSearch", "CallTool"} & default
    assert "ToolSearch" in REGISTRY.select(["default", "lean"], [], [])


def test_with_lean_everything_else_can_be_called_but_what_is_excluded() -> None:
    listed = REGISTRY.select(["lean"], ["git_log"], [])
    unlisted = REGISTRY.unlisted(["lean"], listed, ["Bash", "curl"])
    assert "git_log" in listed
    assert unlisted == set(REGISTRY.entries) - listed - {"bash", "curl"}
    assert REGISTRY.unlisted(["default"], REGISTRY.select(["default"], [], []), []) == frozenset()


def test_without_a_choice_it_is_the_default_profile() -> None:
    assert REGISTRY.select([], [], []) == REGISTRY.select(["default"], [], [])


def test_names_alone_select_just_those_and_with_toolsets_they_add() -> None:
    assert REGISTRY.select([], ["Read"], []) == {"read_file"}
    assert REGISTRY.select(["shell"], ["Read"], []) == REGISTRY.select(["shell"], [], []) | {"read_file"}


def test_an_exclusion_beats_everything() -> None:
    assert "bash" not in REGISTRY.select(["all"], ["bash"], ["Bash"])


@pytest.mark.parametrize("arguments", [(["nope"], [], []), ([], ["nope"], []), ([], [], ["nope"])])
def test_an_unknown_choice_stops_the_start_and_names_the_choices(
    arguments: tuple[list[str], list[str], list[str]],
) -> None:
    with pytest.raises(SettingsError, match=r"choose from .*(bash|lean)"):
        REGISTRY.select(*arguments)
