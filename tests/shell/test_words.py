"""The parts of a command that rules see."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.shell.words import simple_parts

PARTS = {
    "git status": ["git status"],
    "git status; rm -rf /": ["git status", "rm -rf /"],
    "a && b || c": ["a", "b", "c"],
    "a & b\nc\r\nd": ["a", "b", "c", "d"],
    "cat x|sh": ["cat x", "sh"],
    "echo $(rm x)": ["echo", "rm x"],
    "echo `rm x`": ["echo", "rm x"],
    "diff <(rm x) y": ["diff", "rm x", "y"],
    "{ rm x; }": ["rm x"],
    "sh -c 'ls; rm x'": ["sh -c 'ls", "rm x'"],
    "if true; then rm x; fi": ["if true", "true", "then rm x", "rm x", "fi"],
    "A=1 B='2 3' rm x": ["A=1 B='2 3' rm x", "rm x"],
    "! time rm x": ["! time rm x", "rm x"],
    "echo hi>/etc/x": ["echo hi", "/etc/x"],
}


def test_rules_see_every_part_of_a_command() -> None:
    found = {command: list(simple_parts(command)) for command in PARTS}
    assert found == {command: list(dict.fromkeys([command, *parts])) for command, parts in PARTS.items()}


@given(
    st.lists(st.sampled_from(["rm x", "echo", ";", "|", "&&", "\n", "$(", ")", "`", "'", '"', " ", "A=1 "]))
)
def test_no_chaining_hides_a_command(pieces: list[str]) -> None:
    command = "".join(pieces)
    found = simple_parts(f"{command};rm -rf /;{command}")
    assert "rm -rf /" in found
    assert all(part == part.strip() and part for part in simple_parts(command))
