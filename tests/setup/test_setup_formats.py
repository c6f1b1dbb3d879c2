"""Edits of TOML and YAML change the wanted part and no other byte, or are rejected."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.commands.setup import toml, yaml
from mcp_toolserver.commands.setup.document import Broken

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


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@given(YAML_LINES)
def test_a_yaml_text_is_the_same_after_adding_and_removing(ending: str, lines: list[str]) -> None:
    text = "".join(lines).replace("\n", ending)
    added = yaml.put(text, PLACE, ENTRY)
    assert yaml.put(added, PLACE, ENTRY) == added
    assert is_subsequence(text, added)
    removed = yaml.drop(added, PLACE)
    if "servers:\n    other" in "".join(lines):
        assert removed == text
    else:
        assert is_subsequence(text, removed)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@given(TOML_LINES)
def test_a_toml_text_is_the_same_after_adding_and_removing(ending: str, lines: list[str]) -> None:
    text = "".join(lines).replace("\n", ending)
    added = toml.put(text, PLACE, ENTRY)
    assert toml.put(added, PLACE, ENTRY) == added
    assert is_subsequence(text, added)
    assert toml.drop(added, PLACE).rstrip() == text.rstrip()


def is_subsequence(short: str, long: str) -> bool:
    rest = iter(long)
    return all(char in rest for char in short)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        pytest.param("servers: {}\n", "servers:\n  new: 1\n", id="empty"),
        pytest.param("servers:\n", "servers:\n  new: 1\n", id="null"),
        pytest.param("servers:\n  new: 2 # two\n", "servers:\n  new: 1 # two\n", id="value"),
        pytest.param("servers:\n  new:\n  - 2\n  - 3\nz: 1", "servers:\n  new: 1\nz: 1", id="block"),
        pytest.param("\ufeffa: 1", "\ufeffa: 1\nservers:\n  new: 1\n", id="bom"),
    ],
)
def test_a_yaml_value_is_written_in_the_form_of_its_surroundings(text: str, after: str) -> None:
    assert yaml.put(text, PLACE, 1) == after


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("a: [\nb: }\n", "line 2, column 4", id="syntax"),
        pytest.param("- a\n", "not a mapping", id="list"),
        pytest.param("servers: {a: 1}\n", "by hand", id="braces"),
        pytest.param("servers: 5\n", "servers is not a mapping", id="scalar"),
        pytest.param("a: 1\n---\nb: 2\n", "line 2", id="two-documents"),
    ],
)
def test_a_yaml_text_that_cannot_be_edited_is_rejected(text: str, place: str) -> None:
    with pytest.raises(Broken, match=place):
        yaml.put(text, PLACE, 1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("a = 1\nb = ]\n", "line 2, column ", id="syntax"),
        pytest.param("servers = 5\n", "servers is not a table", id="scalar"),
        pytest.param("a = 1\na = 2\n", "line", id="twice"),
    ],
)
def test_a_toml_text_that_cannot_be_edited_is_rejected(text: str, place: str) -> None:
    with pytest.raises(Broken, match=place):
        toml.put(text, PLACE, 1)
