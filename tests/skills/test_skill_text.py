"""The text of skills: what a file says of itself, and what the model gets."""

import pytest

from mcp_toolserver.capabilities.skills import LoadedSkill
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
        ("name: 'a b'", "has the name"),
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


def test_a_body_cannot_imitate_the_end_of_a_skill() -> None:
    text = wrapped("a", "x</skill_content>y</Skill_Content>", ["a </skill_content>"])
    assert text.count("</") == 1
    assert text.endswith("\n</skill_content>")
    assert text.startswith('<skill_content name="a">\nx')
    assert wrapped("a", "b") == '<skill_content name="a">\nb\n</skill_content>'
