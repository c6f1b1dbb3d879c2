"""Rules about commands see words: liberally where they deny or ask, strictly where they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.shell.command_pattern import CommandPattern
from mcp_toolserver.text.shell.words import simple_parts

PUSH = "git push:*"


def denied(pattern: str, command: str) -> bool:
    return any(map(CommandPattern(pattern).matches, simple_parts(command)))


def allowed(pattern: str, command: str) -> bool:
    return all(map(CommandPattern(pattern).permits, simple_parts(command)))


@pytest.mark.parametrize(
    "command",
    [
        "git push", "git push origin main", "git  push", "git\tpush", " git push", "'git' push", "git 'push'",
        'g"i"t pu\\sh', "git $'push'", "git \\\npush", "/usr/bin/git push", "./git push", "X=1 git push",
        "X='a b' git push", "env X=1 git push", "env -u HOME /usr/bin/git push", "sudo -u me git push",
        "timeout 5 git push", "nice -n 5 git push", "xargs git push", "sh -c 'git push'",
        "bash -lc 'cd x; git push'",
        "eval git push", "find . -exec git push \\;", "git -C x push", "git --no-pager push",
        "git -C x --no-pager -c a=b push origin", "sudo git -C x push", "true && git  push",
        "if a; then git\tpush; fi",
        "echo $(git  push)", "git push 'open", "git -C 'open push", "X=1 sudo git push",
        "git " + "-c push " * 100 + "x", "sudo " + "git x " * 100,
    ],
)  # fmt: skip
def test_a_rule_that_denies_matches_however_the_command_is_spelt(command: str) -> None:
    assert denied(PUSH, command)


@pytest.mark.parametrize(
    "command",
    [
        "git pull", "git commit -m push", "git log --grep push", "echo git push", "gitpush", "git pushy",
        "git-push", "sudo git pull", "git", "cat 'git", "git -C x pull push", "",
    ],
)  # fmt: skip
def test_a_rule_that_denies_leaves_other_commands_alone(command: str) -> None:
    assert not denied(PUSH, command)


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        pytest.param("ls", "ls", True, id="exact"),
        pytest.param("ls", "ls -l", False, id="exact-only"),
        pytest.param("ls", "sudo ls", True, id="exact-behind-another"),
        pytest.param("rm *", "rm  x", True, id="star"),
        pytest.param("rm *", "rm", False, id="star-needs-a-word"),
        pytest.param("cat /etc/*", "cat '/etc/a/b'", True, id="star-in-a-path"),
        pytest.param("*mkfs*", "sudo /sbin/mkfs.ext4 x", True, id="stars-around"),
        pytest.param("/usr/bin/git push", "/usr/bin/git  push", True, id="path-of-a-program"),
        pytest.param("/usr/bin/git push", "git push", False, id="another-path"),
        pytest.param("echo 'it:*", "echo it is", True, id="a-pattern-that-cannot-be-parsed"),
        pytest.param(":*", "ls", False, id="no-words"),
        pytest.param("git -C x push", "git -C x push", True, id="an-option-in-the-pattern"),
    ],
)
def test_patterns_say_what_they_match(pattern: str, command: str, expected: bool) -> None:
    assert denied(pattern, command) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("git push", True, id="the-words"),
        pytest.param("git  push\torigin", True, id="blanks"),
        pytest.param("git 'push' \"a b\"", True, id="quotes"),
        pytest.param("git push && git push -f", True, id="each-part"),
        pytest.param("git push; rm x", False, id="another-part"),
        pytest.param("env git push", False, id="behind-another"),
        pytest.param("X=1 git push", False, id="assignment"),
        pytest.param("/tmp/git push", False, id="another-program"),
        pytest.param("git -c core.sshCommand=x push", False, id="options-first"),
        pytest.param("git push 'open", False, id="cannot-be-parsed"),
        pytest.param("git pushy", False, id="another-word"),
        pytest.param("'git push'", False, id="one-word"),
    ],
)
def test_a_rule_that_allows_takes_only_its_words(command: str, expected: bool) -> None:
    assert allowed(PUSH, command) is expected


def test_an_exact_rule_allows_no_other_words() -> None:
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
