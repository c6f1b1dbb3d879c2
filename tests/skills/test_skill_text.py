"""The text of skills: what a file says of itself in its front matter, and what the model gets."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.front_matter import MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_NODES, front_matter
from mcp_toolserver.text.skills import with_arguments, wrapped


def test_arguments_replace_their_placeholder_or_follow() -> None:
    assert with_arguments("a $ARGUMENTS b $ARGUMENTS", "x") == "a x b x"
    assert with_arguments("a $ARGUMENTS.", "") == "a ."
    assert with_arguments("a", "x") == "a\n\nArguments: x"
    assert with_arguments("a", "") == "a"
    assert with_arguments("$2-$1 $ARGUMENTS[0] $3|", "'b c' $1") == "$1-b c b c |"
    assert with_arguments("$1 ${CLAUDE_SKILL_DIR}/x $10 ${HOME}", "a", folder="/s") == "a /s/x $10 ${HOME}"
    assert with_arguments("awk $1", "", has_numbers=False) == "awk $1"


def test_a_body_cannot_imitate_the_end_of_a_skill() -> None:
    text = wrapped("a", "x</skill_content>y</Skill_Content>", ["a </skill_content>"])
    assert text.count("</") == 1
    assert text.endswith("\n</skill_content>")
    assert text.startswith('<skill_content name="a">\nx')
    assert wrapped("a", "b") == '<skill_content name="a">\nb\n</skill_content>'


def _fields(block: str) -> object:
    return front_matter(f"---\n{block}\n---\nbody").fields


ROWS = Path(__file__).with_name("front_matter.txt").read_text(encoding="utf-8").splitlines()
"""Blocks as JSON, with their fields or why they are refused."""


def test_fields_have_the_values_of_yaml() -> None:
    for row in map(json.loads, ROWS):
        if "fields" in row:
            assert json.loads(json.dumps(_fields(row["block"]))) == row["fields"], row
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
    ("a: x\n" * MAX_BYTES, "bytes"),
    ("# é\n" * (MAX_BYTES // 4), "bytes"),
    ("a: " + "x" * MAX_LINE, "a line of more than"),
    ("a: [" + "x," * MAX_NODES + "]", "keys and values"),
    ("\n".join(f"k{n}:" for n in range(MAX_NODES)), "keys and values"),
    ("a: " + "[" * 8_000, "brackets and braces"),
    ("a: " + "{a: " * 200, "inside one another"),
    ("- " * 4_000, "inside one another"),
    ("? " * 4_000, "as a name"),
    # Only the first lines that YAML refuses are repaired.
    ("\n".join(f"k{number}: a: b" for number in range(60)), "not YAML"),
)


def test_what_is_no_plain_small_mapping_is_refused() -> None:
    rows = [(row["block"], row["refused"]) for row in map(json.loads, ROWS) if "refused" in row]
    for block, part in (*REFUSED, *rows):
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
