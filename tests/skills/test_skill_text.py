"""The text of skills: what a file says of itself in its front matter, and what the model gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.skills import LoadedSkill
from mcp_toolserver.text.front_matter import MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_NODES, front_matter
from mcp_toolserver.text.skills import MAX_TOOLS, parse_skill, with_arguments, wrapped


def _skill(fields: str = "", body: str = "Do it.") -> LoadedSkill:
    return parse_skill(f"---\n{fields}\n---\n{body}", "release")


def test_a_skill_says_what_it_is() -> None:
    skill = _skill(
        "name: cut-release\ndescription: |\n  Cut a\n  release.\nwhen-to-use: before: shipping\n"
        "argument-hint: [version]\naliases: [cut, ship]\nallowed-tools: Read, Bash(git log *) Grep\n"
        "user-invocable: false\ndisable-model-invocation: true",
        "\nDo it.\n",
    )
    assert skill.card.name == "cut-release"
    assert skill.card.description == "Cut a release."
    assert skill.card.when_to_use == "before: shipping"
    assert skill.card.argument_hint == "[version]"
    assert skill.card.aliases == ("cut", "ship", "release")
    assert skill.allowed_tools == ("Read", "Bash(git log *)", "Grep")
    assert not skill.card.user_invocable
    assert not skill.card.model_invocable
    assert skill.body == "Do it."


def test_allowed_tools_are_rules_and_an_argument_hint_is_text() -> None:
    rules: tuple[tuple[str, tuple[str, ...] | None], ...] = (
        ("allowed-tools: [Read, 'Bash(npm run *)']", ("Read", "Bash(npm run *)")),
        ("allowed-tools: Read,Bash(git add:*), Edit(src/**)", ("Read", "Bash(git add:*)", "Edit(src/**)")),
        ("allowed_tools: Read", ("Read",)),
        ("allowed-tools:", ()),
        ("allowed-tools: []", ()),
        ("allowed-tools: '*'", None),
        ("allowed-tools: [Read, '*']", None),
        ("allowed-tools: '*(secret)'", ("*(secret)",)),
    )
    assert [_skill(fields).allowed_tools for fields, _ in rules] == [expected for _, expected in rules]
    hints = ("argument-hint: file", "argument-hint: {file: 1}", "argument-hint:")
    assert {_skill(hint).card.argument_hint for hint in hints} == {"file", ""}


def test_a_file_that_is_no_valid_skill_says_why() -> None:
    for fields, part in (
        ("name: ../../etc", "has the name"),
        ('name: "a\\u202eb"', "has the name"),
        ('name: "a\\x1b[2Jb"', "has the name"),
        ("name: " + "a" * 65, "has the name"),
        ("name: .hidden", "has the name"),
        ("name: [a]", "list or mapping as its name"),
        ("description: {a: b}", "list or mapping as its description"),
        ("allowed-tools: {Read: true}", "no list of tools"),
        ("allowed-tools: [[Read]]", "no list of tools"),
        ("allowed-tools: 'Bash(git'", "no list of tools"),
        ("allowed-tools: Read;Bash", "no list of tools"),
        ("allowed-tools: " + "Read " * (MAX_TOOLS + 1), "more than"),
        ("user-invocable: maybe", "neither true nor false"),
        ("aliases: ../x", "aliases"),
        ("aliases: a b c d e f g h i", "aliases"),
    ):
        with pytest.raises(ValueError, match=part):
            _skill(fields)
    with pytest.raises(ValueError, match="no text"):
        _skill("name: a", " \n")


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
    ("a: *\nb: 'x' y\nc: *, 'z", {"a": "*", "b": "'x' y", "c": "*, 'z"}),
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
