"""Edits of TOML and YAML change the wanted part and no other byte, or are rejected."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.commands.setup import toml, yaml
from mcp_toolserver.commands.setup.jsonc import Broken
from tests.setup.test_setup_jsonc import is_subsequence

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
    for put, broken in ((yaml.put, BROKEN_YAML), (toml.put, BROKEN_TOML)):
        for text, place in broken.items():
            with pytest.raises(Broken, match=place):
                put(text, PLACE, 1)
