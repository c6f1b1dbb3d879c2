"""Rules about commands see every part of them, as words: liberally where they deny or ask, and strictly where
they allow.
"""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.shell.script import simple_commands
from mcp_toolserver.text.shell.words import CommandPattern, simple_parts
from tests.support.cases import table


@given(
    st.lists(st.sampled_from(["rm x", "echo", ";", "|", "&&", "\n", "$(", ")", "`", "'", '"', " ", "A=1 "]))
)
def test_no_chaining_hides_a_command(pieces: list[str]) -> None:
    command = "".join(pieces)
    found = simple_parts(f"{command};rm -rf /;{command}")
    assert "rm -rf /" in found
    assert all(part == part.strip() and part for part in simple_parts(command))


PUSH = "git push:*"


def denied(pattern: str, command: str) -> bool:
    return any(map(CommandPattern(pattern).matches, simple_parts(command)))


def allowed(pattern: str, command: str) -> bool:
    return all(map(CommandPattern(pattern).permits, simple_parts(command)))


PUSHES = [
    "git push", "git push origin main", "git  push", "git\tpush", " git push", "'git' push", "git 'push'",
    'g"i"t pu\\sh', "git $'push'", "git \\\npush", "/usr/bin/git push", "./git push", "X=1 git push",
    "X='a b' git push", "env X=1 git push", "env -u HOME /usr/bin/git push", "sudo -u me git push",
    "timeout 5 git push", "nice -n 5 git push", "xargs git push", "sh -c 'git push'",
    "bash -lc 'cd x; git push'",
    "eval git push", "find . -exec git push \\;", "git -C x push", "git --no-pager push",
    "git -C x --no-pager -c a=b push origin", "sudo git -C x push", "true && git  push",
    "if a; then git\tpush; fi", "diff <(git push) y", "{ git push; }", "echo `git push`", "! time git push",
    "echo $(git  push)", "git push 'open", "X=1 sudo git push", ">log git push", "git <f push",
    'cd x && git -c "a;b" push', "bash <<X\ngit push\nX", "sudo --user me git push", 'git $"push"',
    "git " + "-c push " * 100 + "x",
]  # fmt: skip


def test_a_rule_that_denies_matches_however_the_command_is_spelt() -> None:
    assert [command for command in PUSHES if not denied(PUSH, command)] == []


OTHERS = [
    "git pull", "git commit -m push", "git log --grep push", "echo git push", "gitpush", "git pushy",
    "git-push", "sudo git pull", "git", "cat 'git", "sudo echo git push", "git -C x pull push", "",
]  # fmt: skip


def test_a_rule_that_denies_leaves_other_commands_alone() -> None:
    assert [command for command in OTHERS if denied(PUSH, command)] == []


def test_what_runs_another_command_is_followed_only_so_far() -> None:
    hostile = (
        "$(",
        "sudo ",
        "sudo --a ",
        "eval ",
        "find -exec ",
        "echo|xargs ",
        "sh -c 'a' ",
        "((",
        "<<a ",
        "`",
    )
    counts = {piece: len(simple_commands(piece * 2_000)) for piece in hostile}
    assert {piece: count for piece, count in counts.items() if count > 6_000} == {}
    assert counts["sudo "] < 100
    # What is not read may be anything, so a rule that denies matches; one that allows does not.
    deep = {"eval " * 15 + "git pull": False, "eval " * 20 + "git pull": True, "$(" * 20: True}
    assert {command: denied(PUSH, command) for command in deep} == deep


TABLES = Path(__file__).with_name("command_patterns.txt")


def test_patterns_say_what_they_match() -> None:
    rows = table(TABLES, "denied")
    assert [row for row in rows if denied(row[2], row[3]) is not (row[1] == "yes")] == []


def test_a_rule_that_allows_takes_only_its_words() -> None:
    rows = table(TABLES, f"allowed by {PUSH}")
    assert [row for row in rows if allowed(PUSH, row[2]) is not (row[1] == "yes")] == []
    assert allowed(PUSH, "git  push\torigin")
    assert allowed("rm a b", "rm a  b")
    assert not allowed("rm a b", "rm 'a b'")


@given(
    st.text(alphabet="gitpush -'\"\\$\t\n;&=XC/*", max_size=40),
    st.sampled_from([PUSH, "git", "*", "git push*"]),
)
def test_what_is_allowed_would_be_denied_too(command: str, pattern: str) -> None:
    made = CommandPattern(pattern)
    for part in simple_parts(command):
        assert made.matches(part) or not made.permits(part)
