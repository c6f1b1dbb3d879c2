"""The block of YAML at the start of a Markdown file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.front_matter import MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_NODES, front_matter


def _fields(block: str) -> object:
    return front_matter(f"---\n{block}\n---\nbody").fields


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("name: release\ntext: 'Cut a release'", {"name": "release", "text": "Cut a release"}),
        ("a: 3\nb: -1.5\nc: true\nd: ~\ne:", {"a": 3, "b": -1.5, "c": True, "d": None, "e": None}),
        ("a: [x, 2]\nb:\n- y\n- z: 1\nc: {d: e}", {"a": ("x", 2), "b": ("y", {"z": 1}), "c": {"d": "e"}}),
        ("a: >\n  one\n  two\nb: |\n  one\n  two", {"a": "one two\n", "b": "one\ntwo\n"}),
        ("a: 2026-01-02\nb: yes\nc: 0x1f\nd: '3'", {"a": "2026-01-02", "b": "yes", "c": "0x1f", "d": "3"}),
        ("", {}),
        ("# nothing", {}),
    ],
)
def test_fields_have_the_values_of_yaml(block: str, expected: object) -> None:
    assert _fields(block) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("argument-hint: [file] [line]\nn: 1", {"argument-hint": "[file] [line]", "n": 1}),
        ("description: Use when: it's asked", {"description": "Use when: it's asked"}),
        ("a: b: c\nd: - e\nf: {x} y", {"a": "b: c", "d": "- e", "f": "{x} y"}),
    ],
)
def test_a_line_that_yaml_refuses_is_text(block: str, expected: object) -> None:
    assert _fields(block) == expected


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("no front matter", "no front matter"),
        ("---\na: 1\n---\nbody\n---\nmore", "body\n---\nmore"),
        ("--- \r\na: 1\r\n---\t\r\nbody\r\n", "body\r\n"),
        ("\ufeff---\na: 1\n---", ""),
        ("---\n---\nbody", "body"),
        ("----\nno\n----", "----\nno\n----"),
        ("---", "---"),
        ("", ""),
    ],
)
def test_the_body_begins_after_the_block(text: str, body: str) -> None:
    assert front_matter(text).body == body


@pytest.mark.parametrize(
    ("block", "part"),
    [
        pytest.param("a: &x 1\nb: *x", "anchor", id="anchor"),
        pytest.param("a: *x", "anchor", id="alias"),
        pytest.param("a: !!python/object/apply:os.system [id]", "tag", id="tag"),
        pytest.param("a: ! x", "tag", id="tag without name"),
        pytest.param("? [a]\n: b", "as a name", id="list as name"),
        pytest.param("a: 1\na: 2", "twice", id="twice"),
        pytest.param("- a", "mapping", id="list"),
        pytest.param("text", "mapping", id="text"),
        pytest.param("a: 1\n...\nb: 2", "document marker", id="end of a document"),
        pytest.param("--- a: 1", "document marker", id="start of a document"),
        pytest.param("a: 'x", "not YAML", id="open quote"),
        pytest.param("a:\n\tb: 1", "not YAML", id="tab"),
        pytest.param("a: b: c\n  d: e", "not YAML", id="two lines"),
        pytest.param("a: \x1b[31mred", "character", id="escape sequence"),
        pytest.param("na\x00me: a", "character", id="NUL"),
        pytest.param("a: \u2028", "character", id="line separator"),
        pytest.param("a: \ud800", "character", id="surrogate"),
        pytest.param("a: x\n" * MAX_BYTES, "bytes", id="too long"),
        pytest.param("# é\n" * (MAX_BYTES // 4), "bytes", id="too long in bytes"),
        pytest.param("a: " + "x" * MAX_LINE, "a line of more than", id="long line"),
        pytest.param("a: [" + "x," * MAX_NODES + "]", "keys and values", id="too many values"),
        pytest.param("\n".join(f"k{n}:" for n in range(MAX_NODES)), "keys and values", id="too many keys"),
        pytest.param("a: " + "[" * 8_000, "brackets and braces", id="brackets"),
        pytest.param("a: " + "[" * 200, "inside one another", id="fewer brackets"),
        pytest.param("a: " + "{a: " * 200, "inside one another", id="braces"),
        pytest.param("- " * 4_000, "inside one another", id="dashes"),
        pytest.param("? " * 4_000, "as a name", id="question marks"),
    ],
)
def test_what_is_no_plain_small_mapping_is_refused(block: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        _fields(block)


def test_a_block_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="second line"):
        front_matter("---\na: 1\n")


def test_a_long_block_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        front_matter("---\n" + "a\n" * MAX_BYTES)


def test_only_the_first_lines_that_yaml_refuses_are_repaired() -> None:
    with pytest.raises(ValueError, match="not YAML"):
        _fields("\n".join(f"k{number}: a: b" for number in range(60)))


def test_lists_and_mappings_may_lie_inside_one_another() -> None:
    depth = MAX_DEPTH - 1
    assert _fields("a: " + "[" * depth + "]" * depth)


def test_a_list_has_one_level_more_than_allowed() -> None:
    with pytest.raises(ValueError, match="inside one another"):
        _fields("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)


@given(st.text(alphabet=st.sampled_from("ab:-[]{}'\"|>&*!#%?, \n\t"), max_size=200))
def test_every_text_has_fields_or_is_refused(block: str) -> None:
    try:
        fields = _fields(block)
    except ValueError:
        return
    assert isinstance(fields, dict)
