"""What holds for every tool, whoever wrote it."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.pipeline.registry import Entry, unwrapped
from mcp_toolserver.pipeline.validation import checked, respelt
from mcp_toolserver.runtime.host_services import HostServices
from mcp_toolserver.tool_spec import Args, PathMark, Profile
from tests.project.test_each_example import example
from tests.support.generated import ENTRIES, SNAPSHOTS, TOOLS_PAGE, snapshot, snapshot_file, tools_pages, wire
from tests.support.workbench import machine

BUDGETS = {Profile.LEAN: 8_000, Profile.DEFAULT: 22_000, Profile.ALL: 80_000}
"""Most characters of compact JSON in the answer to `tools/list`."""

FREE = {"StructuredOutput"}
"""Tools whose arguments have the names that the client's own program asks for."""

NOTES = {"list_notes", "read_note", "create_note", "update_note"}
"""Tools whose folders are those of another program."""

EMPTY: dict[str, JsonValue] = {"integer": 0, "number": 0, "string": ""}
"""What a client in strict mode sends for an argument that it has no value for."""

MEANT = defaultdict[str, set[tuple[str, JsonValue]]](
    set,
    {
        "NotebookEdit": {("cell_number", 0), ("new_source", "")},
        "TaskOutput": {("wait_ms", 0), ("offset", 0)},
        "edit_file": {("new_string", "")},
        "grep_search": {("head_limit", 0), ("-A", 0), ("-B", 0)},
        "write_file": {("content", "")},
    },
)
"""Where 0 or "" is a value: the first cell, no text, no limit, no context on one side, no waiting."""

UPDATE = "review the change, then run  python -m tests update"


def every_tool(check: Callable[[Entry], None]) -> Callable[[], None]:
    """One test of all tools, which fails with the name of each that `check` rejects, and why."""

    def test() -> None:
        reject_none(check)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def reject_none(check: Callable[[Entry], None]) -> None:
    """Raises: AssertionError, which names every tool that `check` rejects."""
    rejected: list[str] = []
    for entry in ENTRIES:
        try:
            check(entry)
        except AssertionError as error:
            rejected.append(f"{entry.spec.name}: {error}")
    assert not rejected, "\n".join(rejected)


def snake(name: str) -> str:
    if name.isupper():
        return name.lower()
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def outcome(entry: Entry, arguments: Mapping[str, JsonValue], places: HostServices) -> Args | str:
    """What the tool gets, or why not."""
    try:
        return respelt(entry.spec, checked(entry, arguments), places)
    except InvalidInput as error:
        return str(error)


def nodes(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in nodes(item)]
    if isinstance(schema, dict):
        return [schema, *(found for item in schema.values() for found in nodes(item))]
    return []


@every_tool
def test_its_file_and_its_arguments_bear_its_name(entry: Entry) -> None:
    module = entry.spec.args.__module__
    assert module == f"mcp_toolserver.tools.{entry.toolset}.{snake(entry.spec.name)}"
    assert entry.spec.args.__name__.lower() == entry.spec.name.replace("_", "").lower()


@every_tool
def test_its_name_suits_every_client(entry: Entry) -> None:
    for name in (entry.spec.name, *(alias.name for alias in entry.spec.aliases)):
        assert name.replace("_", "").isalnum()
        assert name.isascii()
        assert len(name) <= 30


@every_tool
def test_it_has_a_title_for_people(entry: Entry) -> None:
    title = wire(entry)["title"]
    assert isinstance(title, str)
    assert re.fullmatch(r"[A-Z][A-Za-z ]{3,39}", title)
    assert title != entry.spec.name
    assert [other.spec.name for other in ENTRIES if other.spec.title == title] == [entry.spec.name]


@every_tool
def test_its_description_is_the_module_docstring_and_short_enough(entry: Entry) -> None:
    module = __import__(entry.spec.args.__module__, fromlist=["TOOL"])
    assert entry.spec.description == unwrapped(module.__doc__ or "")
    assert 40 <= len(entry.spec.description) <= 2048


@every_tool
def test_every_argument_is_described(entry: Entry) -> None:
    arguments = entry.spec.schema["properties"]
    assert isinstance(arguments, dict)
    for node in nodes(entry.spec.schema):
        for name, shape in node.get("properties", {}).items():
            if shape is not arguments.get(name) and name in arguments:
                continue  # described where the argument of that name is
            assert len(shape.get("description", "").split()) >= 3, name


@every_tool
def test_its_arguments_are_strict_and_its_schemas_flat_objects_that_refuse_unknown_fields(
    entry: Entry,
) -> None:
    config = entry.spec.args.model_config
    assert (config.get("frozen"), config.get("strict")) == (True, True)
    assert config.get("extra") == ("allow" if entry.spec.name in FREE else "forbid")
    assert entry.spec.schema["additionalProperties"] is (entry.spec.name in FREE)
    assert entry.spec.output_schema is None or entry.spec.output_schema["additionalProperties"] is False
    for schema in (entry.spec.schema, entry.spec.output_schema or entry.spec.schema):
        assert schema["type"] == "object"
        # An argument may bear such a name; then it is an object.
        assert not any(
            isinstance(node.get(word), str | list)
            for node in nodes(schema)
            for word in ("anyOf", "oneOf", "allOf", "title")
        )


@every_tool
def test_it_needs_no_capability_that_is_dearer_than_its_permission(entry: Entry) -> None:
    assert (
        max((need.permission for need in entry.spec.needs), default=Permission.READ_ONLY)
        <= entry.spec.own_permission
    )


@pytest.mark.requirement("DC-04")
@every_tool
def test_reading_is_neither_destructive_nor_reaching_out(entry: Entry) -> None:
    hints = wire(entry)["annotations"]
    assert isinstance(hints, dict)
    assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} <= hints.keys()
    if entry.spec.own_permission is Permission.READ_ONLY:
        assert hints["readOnlyHint"] is True
        assert hints["destructiveHint"] is False
        assert not entry.spec.destructive
    else:
        assert hints["readOnlyHint"] is False


@every_tool
def test_what_may_take_minutes_says_so_unless_it_waits_for_the_user(entry: Entry) -> None:
    takes_minutes = entry.spec.limits.deadline > 120 and Capability.ASK not in entry.spec.needs
    assert entry.spec.may_be_long == takes_minutes


@every_tool
def test_an_argument_that_names_a_path_is_marked_as_one(entry: Entry) -> None:
    for name, info in entry.spec.args.model_fields.items():
        looks_like_one = name in ("path", "paths", "cwd", "file", "folder", "attachments") or name.endswith(
            ("_path", "_file", "_dir")
        )
        if name == "folder" and entry.spec.name in NOTES:
            continue
        if name == "file" and entry.spec.name == "Skill":
            # It is a path in the folder of a skill, which may lie outside the roots.
            continue
        assert looks_like_one == any(isinstance(mark, PathMark) for mark in info.metadata), name


@every_tool
def test_a_path_is_among_its_subjects(entry: Entry) -> None:
    if not entry.spec.path_fields or entry.spec.kind == "execute" or entry.spec.subjects is None:
        return
    sample = dict.fromkeys(entry.spec.path_fields, "some/where")
    required = entry.spec.schema.get("required", [])
    assert isinstance(required, list)
    given: dict[str, Any] = {**{str(name): "x" for name in required}, **sample}
    args = entry.spec.args.model_construct(None, **given)
    assert "some/where" in entry.spec.subjects(args)


def test_an_optional_argument_sent_as_zero_or_empty_counts_as_not_sent(tmp_path: Path) -> None:
    places = machine(tmp_path)

    def check(entry: Entry) -> None:
        sent = example(entry.spec.name).arguments
        needed = entry.spec.schema.get("required", [])
        properties = entry.spec.schema["properties"]
        assert isinstance(needed, list)
        assert isinstance(properties, dict)
        for name, shape in properties.items():
            assert isinstance(shape, dict)
            if name in needed or (name, empty := EMPTY.get(str(shape.get("type")))) in MEANT[entry.spec.name]:
                continue
            others = {other: value for other, value in sent.items() if other != name}
            for value in (empty, ""):
                expected = outcome(entry, others, places)
                assert outcome(entry, {**others, name: value}, places) == expected, (name, value)

    reject_none(check)


@pytest.mark.requirement("DC-03", "DC-04", "GR-65", "SW-64", "GR-06")
def test_its_snapshot_is_what_clients_see(update: bool) -> None:
    def check(entry: Entry) -> None:
        path = snapshot_file(entry)
        if update:
            path.write_text(snapshot(entry), encoding="utf-8")
        assert path.exists(), UPDATE
        assert path.read_text(encoding="utf-8") == snapshot(entry), UPDATE

    reject_none(check)


def test_no_snapshot_is_left_over() -> None:
    assert {*SNAPSHOTS.rglob("*.json")} == {snapshot_file(entry) for entry in ENTRIES}, UPDATE


def test_the_tools_pages_are_up_to_date(update: bool) -> None:
    pages = tools_pages()
    if update:
        for path, text in pages.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    assert {*TOOLS_PAGE.with_suffix("").iterdir()} == pages.keys() - {TOOLS_PAGE}
    assert [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text] == [], UPDATE


def test_a_profile_keeps_its_budget() -> None:
    for profile, budget in BUDGETS.items():
        tools = [wire(entry) for entry in ENTRIES if entry.spec.profile <= profile]
        size = len(json.dumps({"tools": tools}, separators=(",", ":"), ensure_ascii=False))
        assert size <= budget, profile


TEXTS = {
    "One\ntwo.\nThree.\n": "One two. Three.",
    "One\ntwo.\n\nThree\nfour.": "One two.\n\nThree four.",
    "Do:\n- one\n  thing\n- another\n1. a\n2) b": "Do:\n- one thing\n- another\n1. a\n2) b",
    "- item\n\nText\nafter.": "- item\n\nText after.",
    "See\nthis:\n```\na\n\nb\n```\nand\nthat.": "See this:\n```\na\n\nb\n```\nand that.",
    "As:\n\n    a = 1\n    b = 2\n\nSo\nit is.": "As:\n\n    a = 1\n    b = 2\n\nSo it is.",
    "First.\n    Second\n    third.\n    ": "First. Second third.",
    "Sum: a\n-b or c\n*d*": "Sum: a -b or c *d*",
    " \n": "",
}


def test_a_line_break_within_a_paragraph_becomes_a_space() -> None:
    assert {text: unwrapped(text) for text in TEXTS} == TEXTS


@given(st.just("1\n- \n\n1") | st.text(st.sampled_from("ab .-`1\n "), max_size=60))
def test_no_word_is_lost_and_a_second_time_changes_nothing(text: str) -> None:
    once = unwrapped(text)
    assert once.split() == text.split()
    assert unwrapped(once) == once
