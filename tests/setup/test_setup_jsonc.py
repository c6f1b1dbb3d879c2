"""Edits of JSON with comments, TOML and YAML change the wanted part and no other byte, or are rejected."""

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.commands.setup import toml, yaml
from mcp_toolserver.text import jsonc
from mcp_toolserver.text.jsonc import Broken
from tests.support.extent import examples

NAMES = st.text('abc/*"\\{},é', max_size=4)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.floats(-9, 9), NAMES)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
NEW = VALUES.filter(lambda value: value is not None)
SPACES = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // note, } ]\n", "/* { */", "\n/* a\n b */\n  "])
MEMBER = ("servers", "new")


@st.composite
def texts(draw: st.DrawFn, value: Any) -> str:
    """`value` as JSON with spaces and comments anywhere, and trailing commas."""

    def rendered(one: Any) -> str:
        if isinstance(one, dict):
            parts = [
                f"{space()}{json.dumps(key, ensure_ascii=False)}{space()}:{space()}{rendered(inner)}{space()}"
                for key, inner in one.items()
            ]
            return "{" + joined(parts) + "}"
        if isinstance(one, list):
            return "[" + joined([f"{space()}{rendered(inner)}{space()}" for inner in one]) + "]"
        return json.dumps(one, ensure_ascii=False)

    def joined(parts: list[str]) -> str:
        trailing = "," + space() if parts and draw(st.booleans()) else ""
        return ",".join(parts) + trailing + ("" if parts else space())

    def space() -> str:
        return draw(SPACES)

    text = f"{space()}{rendered(value)}{space()}"
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A configuration with an object `servers` that has no member `new`, and its text."""
    value = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    value["servers"] = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    return value, draw(texts(value))


@given(documents(), NEW, NEW)
def test_an_added_member_changes_nothing_else(
    document: tuple[dict[str, Any], str], first: Any, second: Any
) -> None:
    """Nor does it when it is changed, or removed, but in an object that holds nothing but empty lines."""
    value, text = document
    assert jsonc.put(text, MEMBER, None) == text
    added = jsonc.put(text, MEMBER, first)
    changed = jsonc.put(added, MEMBER, second)
    for now, new in ((added, first), (changed, second)):
        value["servers"]["new"] = new
        assert jsonc.parse(now) == value
        assert jsonc.put(now, MEMBER, new) == now
    assert is_subsequence(text, added)
    restored = jsonc.put(added, MEMBER, None)
    assert restored == jsonc.put(changed, MEMBER, None)
    assert restored == text or re.search(r"\{\s*\n\s*\}", text)
    assert re.sub(r"\s", "", restored) == re.sub(r"\s", "", text)


@given(documents(), st.data())
def test_any_member_can_be_removed(document: tuple[dict[str, Any], str], data: st.DataObject) -> None:
    value, text = document
    key = data.draw(st.sampled_from(sorted(value)))
    del value[key]
    shorter = jsonc.put(text, (key,), None)
    assert jsonc.parse(shorter) == value
    assert is_subsequence(shorter, text)


@given(st.lists(NAMES, max_size=4), st.lists(st.sampled_from(["new", "old"]), unique=True), st.data())
def test_items_of_a_list_are_added_once_and_removed_again(
    present: list[Any], items: list[str], data: st.DataObject
) -> None:
    text = data.draw(texts({"deny": present}))
    added = jsonc.put(text, ("deny",), [*present, *items])
    assert jsonc.parse(added) == {"deny": [*present, *items]}
    assert is_subsequence(text, added)
    removed = jsonc.put(added, ("deny",), present)
    assert removed == text or not present
    shorter = jsonc.put(text, ("deny",), present[1:])
    assert is_subsequence(shorter, text)
    assert jsonc.parse(shorter) == {"deny": present[1:]}


@given(st.text('{}[]",:/*\n ab1-', max_size=30))
def test_any_text_is_parsed_and_edited_or_rejected(text: str) -> None:
    with contextlib.suppress(Broken):
        parsed = jsonc.parse(text)
        if isinstance(parsed, dict):
            assert jsonc.parse(jsonc.put(text, ("new",), 1)) == {**parsed, "new": 1}


def is_subsequence(short: str, long: str) -> bool:
    rest = iter(long)
    return all(char in rest for char in short)


ADDED = {
    "": '{\n  "s": {\n    "new": 1\n  }\n}\n',
    "// only a comment": '// only a comment\n{\n  "s": {\n    "new": 1\n  }\n}\n',
    '{"s": {}}': '{"s": {\n  "new": 1\n}}',
    '{"s": {"a": 0}}': '{"s": {"a": 0, "new": 1}}',
    '{\n\t"s": {\n\t\t"a": 0, // why\n\t\t// end\n\t}\n}': (
        '{\n\t"s": {\n\t\t"a": 0, // why\n\t\t// end\n\t\t"new": 1,\n\t}\n}'
    ),
    '{\n "s": {\n  "a": 0 // why\n }\n}': '{\n "s": {\n  "a": 0, // why\n  "new": 1\n }\n}',
}
BROKEN = {
    '{\n  "s": {\n}': "line 3, column 2",
    '{"s": {} "t": 1}': "line 1, column 10",
    "{'s': 1}": "line 1, column 2",
    '{"s": "\\x"}': "line 1, column 8",
    '{"s": {} /* x}': "line 1, column 10",
    '{"s": 5}': "s is not an object",
    "[]": "the file is not an object",
    '{"s": {},\n "s": {}}': "line 2, column 2",
    "[" * 5000: "more than 100 levels",
}


def test_an_added_member_looks_like_its_neighbours() -> None:
    assert {before: jsonc.put(before, ("s", "new"), 1) for before in ADDED} == ADDED


ENTRY: dict[str, Any] = {"cmd": "/a b/ü", "args": ["a", '"'], "enabled": True, "timeout": 300}
PLACE = ("servers", "new")

YAML_LINES = st.lists(
    st.sampled_from(
        [
            "# comment\n",
            "\n",
            "a: 1\n",
            "b: [1,  2]   # list\n",
            "servers:\n    other:\n        cmd: 'x'\n        args:\n        - 1\n    # end\n",
            "c: |\n  servers:\n    text\n",
            "d:\n- e: 1\n  f: 2\n",
        ]
    ),
    unique=True,
)
TOML_LINES = st.tuples(
    st.lists(st.sampled_from(["# comment\n", "a=1\n", "b = [1,  2] # list\n"]), unique=True),
    st.lists(
        st.sampled_from(
            ["[servers.other]\ncmd='x' # c\n", "[z]\nq = 'text'\n# end\n", "[[list]]\nr=1\n", "[s.t]\n\n"]
        ),
        unique=True,
    ),
).map(lambda parts: [*parts[0], *parts[1]])


@examples(30)
@given(YAML_LINES)
def test_a_yaml_text_is_the_same_after_adding_and_removing(lines: list[str]) -> None:
    text = "".join(lines)
    added = yaml.put(text, PLACE, ENTRY)
    assert yaml.put(added, PLACE, ENTRY) == added
    assert is_subsequence(text, added)
    removed = yaml.put(added, PLACE, None)
    if "servers:\n    other" in text:
        assert removed == text
    else:
        assert is_subsequence(text, removed)


@examples(30)
@given(TOML_LINES)
def test_a_toml_text_is_the_same_after_adding_and_removing(lines: list[str]) -> None:
    text = "".join(lines)
    added = toml.put(text, PLACE, ENTRY)
    assert toml.put(added, PLACE, ENTRY) == added
    assert is_subsequence(text, added)
    assert toml.put(added, PLACE, None).rstrip() == text.rstrip()


YAML_EDITS = {
    "servers: {}\n": "servers:\n  new: 1\n",
    "servers:\n": "servers:\n  new: 1\n",
    "servers:\n  new: 2 # two\n": "servers:\n  new: 1\n",
    "servers:\n  new:\n  - 2\n  - 3\nz: 1": "servers:\n  new: 1\nz: 1",
    "a: 1": "a: 1\nservers:\n  new: 1\n",
}
BROKEN_YAML = {
    "a: [\nb: }\n": "line 2, column 4",
    "- a\n": "not a mapping",
    "servers: {a: 1}\n": "by hand, in servers, write new: 1",
    "servers: 5\n": "servers is not a mapping",
    "a: 1\n---\nb: 2\n": "line 2",
}
BROKEN_TOML = {
    "a = 1\nb = ]\n": "line 2, column ",
    "servers = 5\n": "servers is not a table",
    "a = 1\na = 2\n": "line",
}


def test_a_yaml_value_is_written_in_the_form_of_its_surroundings() -> None:
    assert {text: yaml.put(text, PLACE, 1) for text in YAML_EDITS} == YAML_EDITS


def test_a_text_that_cannot_be_edited_is_rejected() -> None:
    for put, path, broken in (
        (jsonc.put, ("s", "new"), BROKEN),
        (yaml.put, PLACE, BROKEN_YAML),
        (toml.put, PLACE, BROKEN_TOML),
    ):
        for text, place in broken.items():
            with pytest.raises(Broken, match=place):
                put(text, path, 1)
