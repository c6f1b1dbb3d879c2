"""Finding tools by any name and selecting them, and the habits of models who know other servers."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest
from pydantic import JsonValue

from benchmarks.agent.first_calls import recorded, replay
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import InvalidInput, RegistrationError, SettingsError, UnknownTool
from mcp_toolserver.pipeline.registry import Registry
from mcp_toolserver.pipeline.validation import checked
from tests.project.test_each_example import example
from tests.support.cases import collected, table
from tests.support.generated import ENTRIES
from tests.support.workbench import Person, dispatcher, machine, required
from tests.support.workshop import workshop

REGISTRY = Registry(ENTRIES)
CORE = {"read_file", "write_file", "edit_file", "glob_search", "grep_search", "bash"}

SOURCES = Path(__file__).with_name("sources.txt")


@pytest.mark.requirement("SW-01..SW-33", "DA-01..DA-34", "GR-09..GR-22")
def test_a_tool_is_found_by_each_name_of_the_sources_and_by_no_other() -> None:
    named = table(SOURCES, "names")
    assert [[name, REGISTRY.find(name).spec.name] for name, _ in named] == named
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
    assert REGISTRY.translate("diff", {"a": "x", "path": "x"}) == {"path": "x"}


@pytest.mark.requirement("SW-58", "SW-59", "SW-65", "SW-66", "SW-69", "GR-22..GR-26", "GR-29", "GR-32")
def test_a_call_in_the_shape_of_a_source_is_taken_or_the_error_says_what_to_send() -> None:
    with collected() as case:
        for name, sent, expected in table(SOURCES, "shapes"):
            with case(f"{name} {sent}"):
                refused = pytest.raises(InvalidInput, match=re.escape(expected))
                with nullcontext() if expected == "taken" else refused:
                    checked(REGISTRY.find(name), REGISTRY.translate(name, json.loads(sent)))


@pytest.mark.requirement("CL-01..CL-38")
async def test_where_nothing_confines_commands_permissions_are_those_of_claw_code(tmp_path: Path) -> None:
    host = machine(tmp_path, required(*Capability))
    levels = {permission.flag: permission for permission in Permission}
    with collected() as case:
        for mode, (name, flag) in product(Permission, table(SOURCES, "levels")):
            with case(f"{name} in {mode.flag}"):
                server = dispatcher(host, ceiling=mode)
                can_run = server.registry.find(name) in server.available
                assert can_run == (levels[flag] <= mode)
                result = None if can_run else await server.call(name, example(name).arguments, Person())
                assert result is None or f"{name} requires {flag} permission" in result.text


@pytest.mark.requirement("DA-44")
def test_the_toolsets_of_deepagents_have_the_tools_that_it_says() -> None:
    for toolset, names in table(SOURCES, "toolsets"):
        assert {REGISTRY.find(name).spec.name for name in names.split()} <= REGISTRY.select([toolset], [], [])
    assert REGISTRY.select(["clipboard"], [], []) == {"read_clipboard", "write_clipboard"}


def test_two_owners_of_one_name_stop_the_start() -> None:
    with pytest.raises(RegistrationError, match="two tools"):
        Registry((*ENTRIES, ENTRIES[0]))


LOCKED = "read write edit glob grep bash todo web_search web_fetch task question skill tool_search"
"""The names that one of the source systems always has."""


def test_the_profiles_are_nested() -> None:
    lean, default, everything = (REGISTRY.select([name], [], []) for name in ("lean", "default", "all"))
    assert CORE <= lean <= default <= everything == set(REGISTRY.entries)


@pytest.mark.requirement("CL-41", "GR-09..GR-21")
def test_default_lists_or_finds_the_locked_names_and_finds_nothing_else() -> None:
    listed = REGISTRY.select([], [], [])
    found = REGISTRY.unlisted([], [], [], listed=listed)
    names = [*LOCKED.split(), *(name for name, _ in table(SOURCES, "levels"))]
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


@pytest.mark.requirement("GR-64", "GR-66", "SW-68")
def test_a_tool_loads_nothing_of_what_is_above_it() -> None:
    """`tool_spec` names the classes behind `rt` for the type checker only."""
    loaded = (
        "import sys, mcp_toolserver.tool; print(*(m for m in sys.modules if m.startswith('mcp_toolserver.')))"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, encoding="utf-8", check=True)
    layers = {name.split(".")[1] for name in done.stdout.split()}
    assert layers <= {"capabilities", "errors", "text", "tool", "tool_spec"}


CODE = b"one\ntwo\n"


async def test_habits_of_other_tools_work_or_are_put_right_without_a_word_of_what_is_hidden(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    for name in ("a.js", "b.ts", "src/deep/c.js", "secret/d.js"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(CODE)
    (root / "link.js").symlink_to("secret/d.js")
    faults: list[str] = []
    chosen = {"deny": ("Read(secret/**)",), "git": "protected"}
    async with workshop(tmp_path, Permission.DANGER_FULL_ACCESS, **chosen) as server:

        async def said(name: str, **arguments: JsonValue) -> tuple[bool, str]:
            result = await server.call(name, arguments, Person())
            return result.error is not None, result.text

        for part in ("accepted", "refused"):
            for name, arguments, expected in table(Path(__file__).with_name("habits.txt"), part):
                fails, answer = await said(name, **json.loads(arguments))
                if fails is not (part == "refused") or json.loads(f'"{expected}"') not in answer:
                    faults.append(f"{name} {arguments}: {answer}")
        for path in ("elsewhere/d.js", "elsewhere/link.js"):
            _, answer = await said("read_file", path=path)
            if "secret" in answer or "Did you mean" in answer:
                faults.append(f"{path}: {answer}")
    assert faults == []


EXPECTED: Mapping[str, float] = {"claude-code": 0.93, "listed": 0.96, "other-servers": 0.78}
"""By style the share of calls that do what was asked."""


@pytest.mark.long
@pytest.mark.parametrize("style", EXPECTED)
def test_first_calls_do_what_was_asked(style: str, tmp_path: Path) -> None:
    outcomes = replay(recorded()[style], tmp_path)
    failed = [f"{one.call.task}: {one.call.tool} {one.answer[:200]}" for one in outcomes if not one.done]
    assert len(failed) <= (1 - EXPECTED[style]) * len(outcomes), "\n".join(failed)
