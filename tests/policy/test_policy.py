"""Rules and the ceiling: words decide, and the default is no.

Rules about commands see every part of them, as words: liberally where they deny or ask, and strictly where
they allow.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.rules import Policy, Request, RuleContext, Rules, by_reach, parse
from mcp_toolserver.text.shell.script import simple_commands
from mcp_toolserver.text.shell.words import CommandPattern, simple_parts
from mcp_toolserver.tool_spec import Args, Output, Runtime, ToolSpec
from tests.support.cases import table
from tests.support.workbench import required

READ, WRITE, DANGER = Permission

NAMES = {
    "read_file": "read_file",
    "Read": "read_file",
    "write_file": "write_file",
    "Write": "write_file",
    "bash": "bash",
}
WORDS = RuleContext(canonical=NAMES.__getitem__, commands=frozenset({"bash"}))


def rules(*texts: str) -> Rules:
    return Rules(parse(text, WORDS) for text in texts)


def policy(
    ceiling: Permission = DANGER,
    granted: Permission | None = None,
    deny: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
) -> Policy:
    return Policy(
        ceiling=ceiling,
        granted=ceiling if granted is None else granted,
        deny=rules(*deny),
        ask=rules(*ask),
        allow=rules(*allow),
    )


def request(tool: str, *subjects: str | tuple[str, ...], needs: Permission = WRITE) -> Request:
    spelt = tuple((subject,) if isinstance(subject, str) else subject for subject in subjects)
    return Request(tool=tool, level=needs, subjects=spelt)


def test_a_rule_that_cannot_be_understood_stops_the_start() -> None:
    unclosed = ("", "Nope(x)", "write_file(x", "write_file x")
    for text in (*unclosed, "write_file(" + "{a,b}" * 12 + ")", "capability:nope"):
        with pytest.raises(SettingsError, match="rule"):
            parse(text, WORDS)


def test_a_rule_on_other_text_sees_no_words() -> None:
    words = RuleContext(canonical=lambda name: name, commands=frozenset(), texts=frozenset({"ask"}))
    for text, subject, expected in (
        ("ask(it's:*)", "it's late", True),
        ("ask(it's:*)", "it's", True),
        ("ask(it's)", "it's late", False),
    ):
        careful = Policy(ceiling=WRITE, granted=READ, allow=Rules([parse(text, words)]))
        assert (careful.decide(request("ask", subject)).action == "run") is expected


def test_commands_are_kept_to_deny_rules_on_reading_and_to_no_other_tools_rules() -> None:
    deny = ("Read(secrets/**)", "*(*.key)", "Write(*.lock)", "bash(git push:*)", "Unknown(x)", "Write")
    hiding, tools_only = by_reach(deny, WORDS)
    assert hiding == ("Read(secrets/**)", "*(*.key)")
    assert tools_only == ("Write(*.lock)", "Unknown(x)", "Write")


def test_a_deny_rule_on_reading_hides_the_file() -> None:
    hiding = policy(deny=("Read(secrets/**)", "*(*.key)", "Write(*.lock)", "*(https://x.example)"))
    assert hiding.hidden_patterns == ("secrets/**", "*.key")
    assert hiding.hides_anything
    assert hiding.hiding_rule(("secrets/key", "/w/secrets/key"))
    assert not hiding.hiding_rule(("src/key", "/w/src/key"))
    assert not policy(deny=("bash",)).hides_anything
    assert policy(deny=("*(secrets/**)",)).hiding_rule(("secrets/key",))
    assert policy(deny=("capability:fs_read(secrets/**)",)).hiding_rule(("secrets/key",))
    assert not policy(deny=("capability:fs_write(secrets/**)",)).hides_anything
    # A project that hides the tool hides no file from the others.
    assert not replace(parse("Read", WORDS), is_hidden=True).hides_files


def test_a_deny_rule_is_found_for_every_path_that_it_matches() -> None:
    for pattern in (
        "/**",
        "/*",
        "/s*/x",
        "/{srv,usr}/**",
        "/./srv/**",
        "//srv/x",
        "./srv/*",
        "{srv,usr}/x",
        "x",
    ):
        denying = policy(deny=(f"write_file({pattern})",))
        for path in ("/srv/x", "/srv", "srv/x", "/usr/x", "x", "/"):
            is_denied = denying.decide(request("write_file", path)).action == "refuse"
            assert is_denied == denying.deny[0].matches(path), (pattern, path)


async def _nothing(_args: Args, _rt: Runtime) -> Output:
    return Output("")


def spec(permission: Permission | None, *needs: Capability) -> ToolSpec:
    return ToolSpec(
        name="t", description="", permission=permission, needs=frozenset(needs), args=Args, run=_nothing,
        kind="other", subjects=lambda _: (),
    )  # fmt: skip


def test_a_tool_gets_cheaper_or_dearer_with_what_it_needs() -> None:
    confined = {**required(*Capability), Capability.PROCESS: READ}
    unconfined = {**required(*Capability), Capability.JOBS: DANGER}
    assert spec(None, Capability.PROCESS).level(required(*Capability)) is DANGER
    assert spec(None, Capability.PROCESS).level(confined) is READ
    assert spec(None, Capability.JOBS).level(unconfined) is DANGER
    assert spec(None).level(required(*Capability)) is READ
    # One that is dearer than its needs stays so.
    assert spec(DANGER, Capability.FS_READ).level(confined) is DANGER
    assert spec(WRITE).level(required(*Capability)) is WRITE


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
