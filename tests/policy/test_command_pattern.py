"""Rules about commands see every part of them, as words: liberally where they deny or ask, and strictly where
they allow.
"""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.shell.words import CommandPattern, simple_parts

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
    "if a; then git\tpush; fi",
    "echo $(git  push)", "git push 'open", "git -C 'open push", "X=1 sudo git push",
    "git " + "-c push " * 100 + "x", "sudo " + "git x " * 100,
]  # fmt: skip


def test_a_rule_that_denies_matches_however_the_command_is_spelt() -> None:
    assert [command for command in PUSHES if not denied(PUSH, command)] == []


OTHERS = [
    "git pull", "git commit -m push", "git log --grep push", "echo git push", "gitpush", "git pushy",
    "git-push", "sudo git pull", "git", "cat 'git", "git -C x pull push", "",
]  # fmt: skip


def test_a_rule_that_denies_leaves_other_commands_alone() -> None:
    assert [command for command in OTHERS if denied(PUSH, command)] == []


PATTERNS: Mapping[str, tuple[str, str, bool]] = {
    "exact": ("ls", "ls", True),
    "exact-only": ("ls", "ls -l", False),
    "prefix-alone": ("git:*", "git", True),
    "exact-behind-another": ("ls", "sudo ls", True),
    "star": ("rm *", "rm  x", True),
    "star-needs-a-word": ("rm *", "rm", False),
    "star-in-a-path": ("cat /etc/*", "cat '/etc/a/b'", True),
    "stars-around": ("*mkfs*", "sudo /sbin/mkfs.ext4 x", True),
    "path-of-a-program": ("/usr/bin/git push", "/usr/bin/git  push", True),
    "another-path": ("/usr/bin/git push", "git push", False),
    "a-pattern-that-cannot-be-parsed": ("echo 'it:*", "echo it is", True),
    "no-words": (":*", "ls", False),
    "an-option-in-the-pattern": ("git -C x push", "git -C x push", True),
}


def test_patterns_say_what_they_match() -> None:
    found = {name: denied(pattern, command) for name, (pattern, command, _) in PATTERNS.items()}
    assert found == {name: expected for name, (_, _, expected) in PATTERNS.items()}


ALLOWED: Mapping[str, tuple[str, bool]] = {
    "the-words": ("git push", True),
    "blanks": ("git  push\torigin", True),
    "quotes": ("git 'push' \"a b\"", True),
    "each-part": ("git push && git push -f", True),
    "another-part": ("git push; rm x", False),
    "behind-another": ("env git push", False),
    "assignment": ("X=1 git push", False),
    "another-program": ("/tmp/git push", False),
    "options-first": ("git -c core.sshCommand=x push", False),
    "cannot-be-parsed": ("git push 'open", False),
    "another-word": ("git pushy", False),
    "one-word": ("'git push'", False),
}


def test_a_rule_that_allows_takes_only_its_words() -> None:
    found = {name: allowed(PUSH, command) for name, (command, _) in ALLOWED.items()}
    assert found == {name: expected for name, (_, expected) in ALLOWED.items()}
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
