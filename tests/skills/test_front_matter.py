"""The block of YAML at the start of a Markdown file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.front_matter import MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_NODES, front_matter


def _fields(block: str) -> object:
    return front_matter(f"---\n{block}\n---\nbody").fields


FIELDS: tuple[tuple[str, object], ...] = (
    ("name: release\ntext: 'Cut a release'", {"name": "release", "text": "Cut a release"}),
    ("a: 3\nb: -1.5\nc: true\nd: ~\ne:", {"a": 3, "b": -1.5, "c": True, "d": None, "e": None}),
    ("a: [x, 2]\nb:\n- y\n- z: 1\nc: {d: e}", {"a": ("x", 2), "b": ("y", {"z": 1}), "c": {"d": "e"}}),
    ("a: >\n  one\n  two\nb: |\n  one\n  two", {"a": "one two\n", "b": "one\ntwo\n"}),
    ("a: 2026-01-02\nb: yes\nc: 0x1f\nd: '3'", {"a": "2026-01-02", "b": "yes", "c": "0x1f", "d": "3"}),
    ("", {}),
    ("# nothing", {}),
    # A line that YAML refuses is text.
    ("argument-hint: [file] [line]\nn: 1", {"argument-hint": "[file] [line]", "n": 1}),
    ("description: Use when: it's asked", {"description": "Use when: it's asked"}),
    ("a: b: c\nd: - e\nf: {x} y", {"a": "b: c", "d": "- e", "f": "{x} y"}),
)


def test_fields_have_the_values_of_yaml() -> None:
    for block, expected in FIELDS:
        assert _fields(block) == expected, block
    depth = MAX_DEPTH - 1
    assert _fields("a: " + "[" * depth + "]" * depth)


def test_the_body_begins_after_the_block() -> None:
    for text, body in (
        ("no front matter", "no front matter"),
        ("---\na: 1\n---\nbody\n---\nmore", "body\n---\nmore"),
        ("--- \r\na: 1\r\n---\t\r\nbody\r\n", "body\r\n"),
        ("\ufeff---\na: 1\n---", ""),
        ("---\n---\nbody", "body"),
        ("----\nno\n----", "----\nno\n----"),
        ("---", "---"),
        ("", ""),
    ):
        assert front_matter(text).body == body


REFUSED = (
    ("a: &x 1\nb: *x", "anchor"),
    ("a: *x", "anchor"),
    ("a: !!python/object/apply:os.system [id]", "tag"),
    ("a: ! x", "tag"),
    ("? [a]\n: b", "as a name"),
    ("a: 1\na: 2", "twice"),
    ("- a", "mapping"),
    ("text", "mapping"),
    ("a: 1\n...\nb: 2", "document marker"),
    ("--- a: 1", "document marker"),
    ("a: 'x", "not YAML"),
    ("a:\n\tb: 1", "not YAML"),
    ("a: b: c\n  d: e", "not YAML"),
    ("a: \x1b[31mred", "character"),
    ("na\x00me: a", "character"),
    ("a: \u2028", "character"),
    ("a: \ud800", "character"),
    ("a: x\n" * MAX_BYTES, "bytes"),
    ("# é\n" * (MAX_BYTES // 4), "bytes"),
    ("a: " + "x" * MAX_LINE, "a line of more than"),
    ("a: [" + "x," * MAX_NODES + "]", "keys and values"),
    ("\n".join(f"k{n}:" for n in range(MAX_NODES)), "keys and values"),
    ("a: " + "[" * 8_000, "brackets and braces"),
    ("a: " + "[" * 200, "inside one another"),
    ("a: " + "{a: " * 200, "inside one another"),
    ("- " * 4_000, "inside one another"),
    ("? " * 4_000, "as a name"),
    ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "inside one another"),
    # Only the first lines that YAML refuses are repaired.
    ("\n".join(f"k{number}: a: b" for number in range(60)), "not YAML"),
)


def test_what_is_no_plain_small_mapping_is_refused() -> None:
    for block, part in REFUSED:
        with pytest.raises(ValueError, match=part):
            _fields(block)
    # Blocks without an end.
    for text, part in (("---\na: 1\n", "second line"), ("---\n" + "a\n" * MAX_BYTES, "bytes")):
        with pytest.raises(ValueError, match=part):
            front_matter(text)


@given(st.text(alphabet=st.sampled_from("ab:-[]{}'\"|>&*!#%?, \n\t"), max_size=200))
def test_every_text_has_fields_or_is_refused(block: str) -> None:
    try:
        fields = _fields(block)
    except ValueError:
        return
    assert isinstance(fields, dict)
