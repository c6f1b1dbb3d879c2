"""Rules and the ceiling: words decide, and the default is no."""

from dataclasses import replace

import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.rules import Policy, Request, RuleContext, Rules, by_reach, parse
from mcp_toolserver.tool_spec import Args, Output, Runtime, ToolSpec
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
