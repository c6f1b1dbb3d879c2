"""Rules, the ceiling and the watchdog: words decide, and the default is no."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.dangerous_commands import dangerous_command_check, first_objection
from mcp_toolserver.policy.required_permission import level
from mcp_toolserver.policy.rules import Policy, Request, Rule, RuleContext, by_reach, parse
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


def rules(*texts: str) -> tuple[Rule, ...]:
    return tuple(parse(text, WORDS) for text in texts)


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


@pytest.mark.parametrize("needs", Permission)
@pytest.mark.parametrize("ceiling", Permission)
def test_a_call_runs_exactly_when_it_needs_no_more_than_the_ceiling(
    ceiling: Permission, needs: Permission
) -> None:
    verdict = policy(ceiling).decide(request("bash", "x", needs=needs))
    assert verdict.action == ("run" if needs <= ceiling else "refuse")


def test_a_refusal_names_the_level_and_the_flag() -> None:
    reason = policy(READ).decide(request("write_file", "a")).reason
    assert "requires workspace-write permission" in reason
    assert "--permission-mode workspace-write" in reason


@given(st.sampled_from(Permission), st.sampled_from(Permission), st.sampled_from(Permission))
def test_no_allow_rule_lifts_the_ceiling(ceiling: Permission, granted: Permission, needs: Permission) -> None:
    decided = policy(ceiling, min(granted, ceiling), allow=("*", "bash", "bash(*)")).decide(
        request("bash", "x", needs=needs)
    )
    assert decided.action == ("run" if needs <= ceiling else "refuse")


def test_deny_beats_ask_and_ask_beats_allow_and_the_mode() -> None:
    both = policy(deny=("bash(rm *)",), ask=("bash",), allow=("bash",))
    assert both.decide(request("bash", "rm x")).action == "refuse"
    assert both.decide(request("bash", "ls")).action == "ask"
    assert policy(allow=("bash",)).decide(request("bash", "ls")).action == "run"


def test_what_is_above_granted_is_asked_unless_a_rule_allows_it() -> None:
    careful = policy(WRITE, READ, allow=("write_file(docs/**)",))
    assert careful.decide(request("write_file", "docs/a")).action == "run"
    assert careful.decide(request("write_file", "src/a")).action == "ask"
    assert careful.decide(request("read_file", "src/a", needs=READ)).action == "run"


def test_one_denied_subject_denies_the_call_and_one_unallowed_asks() -> None:
    assert policy(deny=("bash(rm:*)",)).decide(request("bash", "ls", "rm -rf x")).action == "refuse"
    careful = policy(DANGER, READ, allow=("bash(git:*)",))
    assert careful.decide(request("bash", "git status", "rm -rf x")).action == "ask"
    assert careful.decide(request("bash", "git status", "git log")).action == "run"


def test_any_spelling_of_a_subject_matches() -> None:
    denying = policy(deny=("write_file(/srv/data/**)",))
    assert denying.decide(request("write_file", ("a.txt", "/srv/data/a.txt"))).action == "refuse"
    assert denying.decide(request("write_file", ("a.txt", "/srv/other/a.txt"))).action == "run"


def test_a_rule_on_a_whole_tool_applies_to_a_call_without_subjects() -> None:
    assert policy(deny=("bash",)).decide(request("bash")).action == "refuse"
    assert policy(DANGER, READ, allow=("bash",)).decide(request("bash")).action == "run"
    assert policy(DANGER, READ).decide(request("bash")).action == "ask"


@pytest.mark.parametrize(
    ("rule", "subject", "expected"),
    [
        pytest.param("Write(docs/**)", "docs/a/b.md", True, id="alias"),
        pytest.param("write_file(docs/**)", "src/docs/a", False, id="anchored"),
        pytest.param("write_file(*.env)", "a/b/.env", True, id="any-depth"),
        pytest.param("write_file()", "x", True, id="empty-is-any"),
        pytest.param("write_file(*)", "a/b", True, id="star-is-any"),
        pytest.param("*", "x", True, id="every-tool"),
        pytest.param("*(secrets/**)", "secrets/k", True, id="every-tool-pattern"),
        pytest.param("bash(git:*)", "git", True, id="prefix-alone"),
        pytest.param("bash(git:*)", "git push origin/main", True, id="prefix-words"),
        pytest.param("bash(git:*)", "gitevil", False, id="prefix-is-of-words"),
        pytest.param("bash(cat /etc/*)", "cat /etc/a/b", True, id="star-crosses-slashes-in-commands"),
        pytest.param("bash(ls)", "ls", True, id="exact"),
        pytest.param("bash(ls)", "ls -l", False, id="exact-only"),
        pytest.param("Read(x)", "x", False, id="other-tool"),
    ],
)
def test_rules_match_what_they_say(rule: str, subject: str, expected: bool) -> None:
    tool = "bash" if rule.startswith("bash") else "write_file"
    assert (policy(deny=(rule,)).decide(request(tool, subject)).action == "refuse") is expected


@pytest.mark.parametrize(
    "text",
    ["", "Nope(x)", "write_file(x", "write_file x", "write_file(" + "{a,b}" * 12 + ")", "capability:nope"],
    ids=["empty", "unknown", "open", "no-parentheses", "explosive", "unknown-capability"],
)
def test_a_rule_that_cannot_be_understood_stops_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match="rule"):
        parse(text, WORDS)


def edit(path: str, *needs: Capability) -> Request:
    return Request(tool="edit_file", level=WRITE, subjects=((path,),), needs=frozenset(needs))


def test_a_rule_on_a_capability_is_about_every_tool_that_needs_it() -> None:
    denying = policy(deny=("capability:fs_write(*.lock)",))
    assert denying.decide(edit("a/uv.lock", Capability.FS_WRITE)).action == "refuse"
    assert denying.decide(edit("a/uv.lock", Capability.FS_WRITE, Capability.FETCH)).action == "refuse"
    assert denying.decide(edit("a/uv.py", Capability.FS_WRITE)).action == "run"
    assert denying.decide(edit("a/uv.lock", Capability.FS_READ)).action == "run"
    asking = policy(ask=("capability:process(git push:*)",))
    pushing = Request(
        tool="other_shell",
        level=WRITE,
        subjects=(("git  push",),),
        needs=frozenset({Capability.PROCESS}),
    )
    assert asking.decide(pushing).action == "ask"


def test_a_rule_that_allows_a_capability_is_about_tools_that_need_nothing_else() -> None:
    careful = policy(WRITE, READ, allow=("capability:fs_write(docs/**)",))
    assert careful.decide(edit("docs/a", Capability.FS_WRITE)).action == "run"
    assert careful.decide(edit("src/a", Capability.FS_WRITE)).action == "ask"
    assert careful.decide(edit("docs/a", Capability.FS_WRITE, Capability.FETCH)).action == "ask"


def test_a_rule_on_the_web_is_about_addresses() -> None:
    denying = policy(deny=("capability:fetch(example.com)",))
    fetching = Request(
        tool="any",
        level=READ,
        subjects=(("https://example.com/a",),),
        needs=frozenset({Capability.FETCH}),
    )
    assert denying.decide(fetching).action == "refuse"


def test_a_rule_on_other_text_sees_no_words() -> None:
    words = RuleContext(canonical=lambda name: name, commands=frozenset(), texts=frozenset({"ask"}))
    for text, subject, expected in (
        ("ask(it's:*)", "it's late", True),
        ("ask(it's:*)", "it's", True),
        ("ask(it's)", "it's late", False),
    ):
        careful = Policy(ceiling=WRITE, granted=READ, allow=(parse(text, words),))
        assert (careful.decide(request("ask", subject)).action == "run") is expected


def test_commands_are_kept_to_deny_rules_on_reading_and_to_no_other_tools_rules() -> None:
    deny = ("Read(secrets/**)", "*(*.key)", "Write(*.lock)", "bash(git push:*)", "Unknown(x)", "Write")
    hiding, tools_only = by_reach(deny, WORDS)
    assert hiding == ("Read(secrets/**)", "*(*.key)")
    assert tools_only == ("Write(*.lock)", "Unknown(x)", "Write")


def test_the_patterns_that_hide_are_those_of_deny_rules_on_reading() -> None:
    hiding = policy(deny=("Read(secrets/**)", "*(*.key)", "Write(*.lock)", "*(https://x.example)"))
    assert hiding.hidden_patterns == ("secrets/**", "*.key")


def test_a_deny_rule_on_reading_hides_the_file() -> None:
    hiding = policy(deny=("Read(secrets/**)",))
    assert hiding.hides_anything
    assert hiding.hides(("secrets/key", "/w/secrets/key"))
    assert not hiding.hides(("src/key", "/w/src/key"))
    assert not policy(deny=("bash",)).hides_anything
    assert policy(deny=("*(secrets/**)",)).hides(("secrets/key",))
    assert policy(deny=("capability:fs_read(secrets/**)",)).hides(("secrets/key",))
    assert not policy(deny=("capability:fs_write(secrets/**)",)).hides_anything


async def _nothing(_args: Args, _rt: Runtime) -> Output:
    return Output("")


def spec(permission: Permission, *needs: Capability) -> ToolSpec:
    return ToolSpec(
        name="t", description="", permission=permission, needs=frozenset(needs), args=Args, run=_nothing,
        kind="other", subjects=lambda _: (),
    )  # fmt: skip


def test_a_tool_gets_cheaper_or_dearer_with_what_it_needs() -> None:
    confined = {**required(*Capability), Capability.PROCESS: READ}
    unconfined = {**required(*Capability), Capability.JOBS: DANGER}
    assert level(spec(DANGER, Capability.PROCESS), required(*Capability)) is DANGER
    assert level(spec(DANGER, Capability.PROCESS), confined) is READ
    assert level(spec(READ, Capability.JOBS), unconfined) is DANGER
    assert level(spec(READ), required(*Capability)) is READ


def test_a_tool_that_is_dearer_than_its_needs_stays_so() -> None:
    confined = {**required(*Capability), Capability.PROCESS: READ}
    assert level(spec(DANGER, Capability.FS_READ), confined) is DANGER
    assert level(spec(WRITE), required(*Capability)) is WRITE


CATASTROPHES = [
    "rm -rf /", "rm -rf /*", "sudo rm -rf --no-preserve-root /", "rm -r -f ~", "rm -fr $HOME/",
    "mkfs.ext4 /dev/sda1", "dd if=/dev/zero of=/dev/sda bs=1M", "shutdown -h now", "reboot", "kill -9 -1",
]  # fmt: skip
HARMLESS = [
    "rm -rf build", "rm -rf ./", "rm -rf /tmp/x", "rm -rf ~/x", "dd if=a of=b", "echo reboot", "kill -9 123",
    "rm /", "git rm -r x",
]  # fmt: skip


@pytest.mark.parametrize("command", CATASTROPHES)
def test_the_watchdog_stops_catastrophes_in_any_part(command: str) -> None:
    objections = (dangerous_command_check(frozenset({"bash"})),)
    assert first_objection(objections, request("bash", f"cd x && {command}", command))
    assert first_objection(objections, request("write_file", command)) is None


@pytest.mark.parametrize("command", HARMLESS)
def test_the_watchdog_lets_ordinary_commands_pass(command: str) -> None:
    assert first_objection((dangerous_command_check(frozenset({"bash"})),), request("bash", command)) is None


def test_a_clients_own_ceiling_lowers_that_of_a_call_and_never_raises_it() -> None:
    written = Request(tool="write_file", level=WRITE, subjects=(("a",),))
    lowered = policy(WRITE).under(ClientRestrictions(named="x", ceiling=READ))
    assert lowered.decide(written).action == "refuse"
    own = policy(READ)
    assert own.under(ClientRestrictions(named="x", ceiling=DANGER)) is own
