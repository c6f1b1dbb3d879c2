"""Policies of other programs, as they are: DeepAgents' `AgentToolPolicy` and Claude Code's settings."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from mcp_toolserver.app import confinement
from mcp_toolserver.app.agent_policy import with_agent_policy
from mcp_toolserver.app.compose import build_application
from mcp_toolserver.app.policy import build_policy
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.custom_tools import AgentToolPolicy, ToolDecision
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.policy.agent_tool_policy import Approval
from mcp_toolserver.policy.rules import Request
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import start_standalone_broker
from mcp_toolserver.settings import Settings
from tests.search.searching import RIPGREP
from tests.support.cases import collected
from tests.support.extent import rounds
from tests.support.workbench import Person, real_tools

READ, WRITE, FULL = Permission
CATALOGUE: Mapping[str, Mapping[str, Approval]] = {
    "filesystem": {"ls": "approve", "read_file": "approve", "write_file": "ask"},
    "clipboard": {"read_clipboard": "approve", "write_clipboard": "approve"},
    "shell": {"shell": "ask"},
}
OFF = ToolDecision(is_enabled=False, approval="approve")


def on(approval: Approval) -> ToolDecision:
    return ToolDecision(is_enabled=True, approval=approval)


EXPANDED: tuple[tuple[dict[str, Any], dict[str, Approval], dict[str, ToolDecision]], ...] = (
    ({}, {}, {"ls": on("approve"), "write_file": on("ask"), "shell": on("ask")}),
    (
        {"disabledMiddleware": ["filesystem"]},
        {},
        {"ls": OFF, "write_file": OFF, "read_clipboard": on("approve")},
    ),
    (
        {"disabledTools": ["Write-Clipboard", "x"]},
        {},
        {"write_clipboard": OFF, "read_clipboard": on("approve"), "x": OFF},
    ),
    # Nobody is asked about a disabled tool.
    ({"disabledTools": ["ls"], "approvals": {"ls": "deny"}}, {"ls": "ask"}, {"ls": OFF}),
    (
        {"approvals": {"write_file": "approve", "ls": "deny"}},
        {},
        {"write_file": on("approve"), "ls": on("deny")},
    ),
    # The tool, its middleware, the defaults of the caller, those of the catalogue.
    (
        {"approvals": {"filesystem": "deny", "ls": "ask", "s__fetch": "approve"}},
        {"read_file": "ask", "write_clipboard": "ask", "s__find": "ask", "s__fetch": "deny"},
        {
            "ls": on("ask"),
            "read_file": on("deny"),
            "write_clipboard": on("ask"),
            "s__find": on("ask"),
            "s__fetch": on("approve"),
        },
    ),
    ({"approvals": {"Read File": "ask", "read_file": "deny"}}, {}, {"read_file": on("deny")}),
    ({"sandbox": "off", "disabledTools": ["shell"]}, {}, {"shell": OFF}),
    ({"sandbox": "failover", "disabledMiddleware": ["shell"]}, {}, {"shell": on("ask")}),
    ({"sandbox": "containerOnly"}, {}, {"shell": OFF, "ls": on("approve")}),
)


@pytest.mark.requirement("DA-48", "DA-49", "DA-50", "DA-51", "DA-53")
def test_a_policy_decides_on_every_tool_of_a_catalogue() -> None:
    with collected() as case:
        for content, extra, wanted in EXPANDED:
            with case(json.dumps(content)):
                found = AgentToolPolicy.from_json(json.dumps(content)).expand(CATALOGUE, extra)
                assert {name: found[name] for name in wanted} == wanted


@pytest.mark.requirement("DA-53")
def test_a_policy_goes_to_json_and_back_and_takes_old_new_and_wrong_ones_as_they_are() -> None:
    policy = AgentToolPolicy(
        disabled_tools=frozenset({"ls"}), approvals={"shell": "deny"}, sandbox="failover", sandbox_image="x"
    )
    assert AgentToolPolicy.from_json(policy.to_json()) == policy
    assert json.loads(policy.to_json()).keys() == {
        *("disabledMiddleware", "disabledTools", "approvals", "sandbox", "sandboxImage")
    }
    some = AgentToolPolicy.from_json('{"disabledTools": ["ls"], "approvals": null, "unheardOf": 1}')
    assert some == AgentToolPolicy(disabled_tools=frozenset({"ls"}))
    for text, names in (
        ('{"approvals": {"ls": "maybe"}}', "approvals.ls"),
        ('{"sandbox": "on"}', "sandbox"),
        ('{"disabledTools": "ls"}', "disabledTools"),
        ("[", "JSON"),
    ):
        with pytest.raises(SettingsError, match=names):
            AgentToolPolicy.from_json(text)


def settings(
    folder: Path, content: object, *flags: str, mode: Permission = WRITE, file: str = ""
) -> Settings:
    """Of a server on `project/app`, whose user's home is `folder`, with this policy."""
    root = folder / "project/app"
    path = folder / (file or "project/.claude/settings.json")
    for place in (root, path.parent):
        place.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    argv = ["--policy", str(path), "--root", str(root), "--permission-mode", mode.flag, "--toolsets", "all"]
    return load([*argv, "--state-dir", str(folder / "state"), *flags], {"HOME": str(folder)}).settings


@asynccontextmanager
async def served(chosen: Settings) -> AsyncGenerator[Dispatcher]:
    found = HostExecutables(ripgrep=RIPGREP)
    broker = start_standalone_broker(confinement.broker_policy(chosen, found))
    app = build_application(chosen, broker, found, held_by=None)
    try:
        yield app.dispatcher
    finally:
        await app.aclose()


async def outcome(server: Dispatcher, name: str, **arguments: Any) -> tuple[str, str]:
    """`asked`, `runs`, or the kind of error of a call that nobody agrees to, and its text."""
    person = Person()
    result = await server.call(name, arguments, person)
    return "asked" if person.asked else result.error or "runs", result.text


ARTICLE = {
    "disabledMiddleware": ["git", "apple_notes"],
    "disabledTools": ["head", "CronCreate"],
    "approvals": {
        "write-file": "ask",
        "edit_file": "deny",
        "ls": "approve",
        "web": "deny",
        "files__read": "ask",
    },
    "sandbox": "off",
    "toolSearch": False,
    "toolSearchLimit": 5,
}
"""Calls and what becomes of them, with what else the server says."""
DECIDED = (
    ("git_status", {}, "denied", "switched off"),
    ("create_note", {"title": "x", "body": "x"}, "denied", "switched off"),
    ("head", {"path": "a"}, "denied", "switched off"),
    ("tail", {"path": "a"}, "runs", "text"),
    ("write_file", {"path": "b", "content": "x"}, "asked", "write_file wants it approved"),
    ("edit_file", {"path": "a", "old_string": "t", "new_string": "n"}, "denied", "by the rule edit_file"),
    ("ls", {}, "runs", "a"),
    ("WebFetch", {"url": "http://127.0.0.1/"}, "denied", "by the rule WebFetch"),
    ("bash", {"command": "echo ran"}, "runs", "ran"),
)


@pytest.mark.requirement("DA-48", "DA-49", "DA-50", "DA-53", "DA-59")
async def test_an_agent_tool_policy_works_as_it_is(tmp_path: Path) -> None:
    chosen = settings(tmp_path, ARTICLE)
    (tmp_path / "project/app/a").write_text("text", encoding="utf-8")
    with collected() as case:
        async with served(chosen) as server:
            for name, arguments, wanted, says in DECIDED:
                with case(name):
                    found, text = await outcome(server, name, **arguments)
                    assert (found, says in text) == (wanted, True), text
            offered = {entry.spec.name for entry in server.listed()}
            # What is disabled is not there; what is denied is, and its calls are refused.
            assert not offered & {"git_status", "git_commit", "head", "CronCreate"}
            assert {"edit_file", "WebFetch", "write_file"} <= offered
            assert [rule.text for rule in server.policy.ask][-1] == "mcp__files__read"


@pytest.mark.requirement("DA-51", "DA-52")
def test_sandbox_and_image_become_settings_and_the_shell_follows(tmp_path: Path) -> None:
    shell_off = {"disabledMiddleware": ["shell"]}
    with collected() as case:
        for sandbox, off, containers in (
            ("off", True, "off"),
            ("failover", False, "failover"),
            ("containerOnly", True, "containerOnly"),
        ):
            with case(sandbox):
                content = {**shell_off, "sandbox": sandbox, "sandboxImage": "example/image:1"}
                made = with_agent_policy(settings(tmp_path, content, mode=FULL), real_tools())
                assert ("bash" in made.exclude_tools) == off
                # Whatever runs commands goes with the shell.
                assert {"REPL", "PowerShell", "container_shell"} <= {*made.exclude_tools}
                assert (made.containers, made.container_image) == (containers, "example/image:1")
    # The operator's own stricter setting stays.
    config = tmp_path / "config.toml"
    config.write_text('containers = "containerOnly"', encoding="utf-8")
    chosen = settings(tmp_path, {"sandbox": "failover"}, "--config", str(config), mode=FULL)
    assert with_agent_policy(chosen, real_tools()).containers == "containerOnly"


REAL = """{
  "$schema": "https://json.schemastore.org/claude-code-settings.json",
  // What the team agreed on
  "model": "opus",
  "env": {"CLAUDE_CODE_ENABLE_TELEMETRY": "0"},
  "includeCoAuthoredBy": false,
  "skipDangerousModePermissionPrompt": true,
  "permissions": {
    "allow": [
      "Bash(npm run test:*)", "Bash(echo *)", "Bash(git log * main)", "Edit(/app/docs/**)", "Edit(src/*.ts)",
      "Edit(~/project/app/home/**)", "Edit(/HOME/project/app/abs/)", "Write(other/**)", "Read(~/.zshrc)",
      "WebFetch(domain:*.example.com)", "mcp__memory__*", "Agent(Explore)", "Skill(release:*)",
      "TodoWrite", "*",
    ],
    "ask": ["Bash(echo push *)", "Edit(lock.json)", "Read(./asked)"],
    "deny": [
      "Read(.env)", "Read(./secrets/**)", "Read(/HOME/project/app/absolute)", "Read(~/project/app/home/key)",
      "Read(//**/*.pem)", "Read(/app/plan.md)", "Bash(curl:*)", "Edit(generated)",
      "WebFetch(domain:evil.example)", "Edit(../app/up.txt)", "Read({a,b})", "mcp__github__delete",
      "Grep(private/**)",
    ],
    "additionalDirectories": ["../app/docs"],
    "disableBypassPermissionsMode": "disable", "disableAutoMode": "disable",
    "blockWritesOutsideWorkingDirectories": true, "denyInsteadOfPrompting": false,
  },
}"""
"""In the project's folder, which is above the root."""
FILES = (
    *(".env", "in/a/.env", "secrets/deep/key", "in/secrets/key", "absolute/a", "home/key", "in/x.pem", "a"),
    *("plan.md", "in/plan.md", "asked", "in/asked", "plain", "{a,b}", "in/private/a", "docs/plan.md"),
)


def reading(*paths: str) -> Sequence[tuple[str, dict[str, str]]]:
    return [("read_file", {"path": path}) for path in paths]


def writing(*paths: str) -> Sequence[tuple[str, dict[str, str]]]:
    return [("write_file", {"path": path, "content": "x"}) for path in paths]


def running(*commands: str) -> Sequence[tuple[str, dict[str, str]]]:
    return [("bash", {"command": command}) for command in commands]


CLAUDE = {
    "runs": (
        *reading("plain", "in/plan.md", "docs/plan.md", "in/secrets/key", "in/asked", "a"),
        *writing("docs/new.md", "docs/a/b.md", "src/a.ts", "home/new", "abs/new/file"),
        *running("echo", "echo a; echo b"),
        ("TodoWrite", {"todos": [{"content": "x", "activeForm": "x", "status": "pending"}]}),
    ),
    "denied": (
        *reading(*FILES[:3], "absolute/a", "home/key", "in/x.pem", "plan.md", "{a,b}", "in/private/a"),
        *writing("generated/a.ts", "in/generated", "up.txt"),
        *running("curl -s http://127.0.0.1", "echo a && curl x", "env X=1 curl x"),
        ("NotebookEdit", {"path": "generated/a.ipynb", "new_source": "", "edit_mode": "insert"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: generated/x\n+x\n*** End Patch"}),
        ("WebFetch", {"url": "https://evil.example/a"}),
        ("curl", {"url": "https://evil.example/a"}),
    ),
    "asked": (
        *reading("asked"),
        *writing("plain", "other/a", "in/lock.json", "src/deep/a.ts", "in/docs/a"),
        *running("touch x", "echo push x", "git log -1"),
        ("WebFetch", {"url": "https://example.com/"}),
    ),
}


async def test_a_settings_file_of_claude_code_works_as_it_is(tmp_path: Path) -> None:
    chosen = settings(tmp_path, REAL.replace("/HOME", f"/{tmp_path}"))
    root = tmp_path / "project/app"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("content\n", encoding="utf-8")
    with collected() as case:
        async with served(chosen) as server:
            for wanted, calls in CLAUDE.items():
                for name, arguments in calls:
                    with case(f"{name} {arguments}"):
                        assert (await outcome(server, name, **arguments))[0] == wanted
            # What may not be read cannot be written even with a yes, and the kernel keeps commands from it.
            agreed = Person(says=True)
            written = await server.call("write_file", {"path": "secrets/new", "content": "x"}, agreed)
            assert written.error == "denied"
            hidden = await server.call("bash", {"command": "echo $(< .env) $(< plain)"}, agreed)
            assert "Permission denied" in hidden.text
            assert hidden.text.endswith("denied\ncontent\n")


def test_paths_begin_where_the_file_lies_and_rules_name_what_they_are_for(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with collected() as case:
        for file, path, found in (
            ("project/.claude/settings.local.json", "/secret", {"project/app/secret"}),
            ("project/.claude/settings.json", "/secret", {"project/secret"}),
            ("project/policy.json", "/secret", {"project/secret"}),
            (".claude/settings.json", "/secret", {".claude/secret"}),
            (".claude/settings.json", "~/link/a", {"link/a", "elsewhere/a"}),
        ):
            with case(file):
                made = settings(tmp_path, {"permissions": {"deny": [f"Edit({path})"]}}, file=file)
                denied = [rule for rule in build_policy(made, real_tools()).deny if rule.capability]
                assert {rule.pattern for rule in denied} == {f"{tmp_path}/{one}/**" for one in found}
                assert {rule.source for rule in denied} == {f"{tmp_path}/{file}, Edit({path})"}


MODES = (
    ("manual", READ, "asked", "asked"),
    ("acceptEdits", WRITE, "runs", "asked"),
    ("bypassPermissions", FULL, "runs", "runs"),
)
"""Each with the lowest mode of the server that it goes with, and what becomes of writes and commands."""


async def test_a_mode_says_what_is_asked_about(tmp_path: Path) -> None:
    with collected() as case:
        for name, lowest, writes, runs in MODES:
            with case(name):
                (folder := tmp_path / name).mkdir()
                policy = {"permissions": {"defaultMode": name}}
                async with served(settings(folder, policy, mode=max(lowest, WRITE))) as server:
                    calls = (("ls", {}), *writing("a"), *running("echo"))
                    found = [(await outcome(server, tool, **arguments))[0] for tool, arguments in calls]
                    assert found == ["runs", writes, runs]
            for lower in (mode for mode in Permission if mode < lowest):
                with case(f"{name} in {lower.flag}"), pytest.raises(SettingsError, match="defaultMode"):
                    settings(tmp_path, policy, mode=lower)
        usual, manual = (
            settings(tmp_path, {"permissions": {"defaultMode": mode}}) for mode in ("default", "manual")
        )
        assert usual == manual
        plan = {"permissions": {"defaultMode": "plan"}}
        assert settings(tmp_path, plan, mode=READ).granted is READ
        with case("plan"), pytest.raises(SettingsError, match="--permission-mode read-only"):
            settings(tmp_path, plan)


UNKEPT = (
    *(({"permissions": {"defaultMode": mode}}, "defaultMode") for mode in ("auto", "dontAsk", "Plan", 1, [])),
    (
        {"permissions": {"defaultMode": "bypassPermissions", "disableBypassPermissionsMode": "disable"}},
        "defaultMode",
    ),
    ({"permissions": {"denyInsteadOfPrompting": True}}, "denyInstead"),
    ({"permissions": {"blockReadsOutsideWorkingDirectories": True}}, "blockReads"),
    ({"permissions": {"disableBypassPermissionsMode": "enable"}}, "disableBypassPermissionsMode"),
    ({"permissions": {"denny": []}}, "permissions.denny"),
    ({"permissions": {"additionalDirectories": ["~/other"]}}, "add --root"),
    ({"permissions": {"deny": "Bash"}}, "permissions.deny"),
    ({"permissions": {"deny": [1]}}, "permissions.deny"),
    ({"permissions": []}, "permissions must be"),
    *(
        ({"permissions": {"deny": [rule]}}, "permissions.deny")
        for rule in (
            *("Agent(model:opus)", "Bash(run_in_background:true)", "mcp__*", "mcp__git_*", "B*", "Read(!a)"),
            *("WebSearch(cats)", "WebFetch(https://a)", "", "Bash(ls", "no rule"),
        )
    ),
    ({"permissions": {"deny": ["Read(a/../b)"]}}, r"rule .* cannot hold"),
    ({"permissions": {"deny": ["Bsah"]}}, "Bsah"),
    ({"permissions": {"allow": ["mcp__github__get_*"]}}, "permissions.allow"),
    *(({"permissions": {}, key: [1]}, key) for key in ("hooks", "sandbox", "autoMode", "allow", "ignoreX")),
    ({"permissions": {}, "allowManagedPermissionRulesOnly": True}, "allowManaged"),
    ({"approvals": {"ls": "deny"}, "hooks": {}}, "hooks"),
    ({"toolSearch": True}, "toolSearch"),
    *((content, "neither") for content in ({}, [], '"x"', "null")),
    ('{"permissions": {}', "line 1"),
    ("[" * 10_000, "levels"),
)
"""Contents, and what the error names."""


@pytest.mark.requirement("DA-50")
def test_what_cannot_be_kept_stops_the_start_and_is_named(tmp_path: Path) -> None:
    unknown = ({"disabledTools": ["lls"]}, {"disabledMiddleware": ["gitt"]}, {"approvals": {"reed": "ask"}})
    with collected() as case:
        for content, says in UNKEPT:
            with case(str(content)[:80]), pytest.raises(SettingsError, match=says):
                build_policy(settings(tmp_path, content), real_tools())
        for content in (*unknown, {"approvals": {"ls": "always"}}):
            with case(str(content)), pytest.raises(SettingsError):
                with_agent_policy(settings(tmp_path, content), real_tools())
        with case("in a root"), pytest.raises(SettingsError, match="inside the root"):
            settings(tmp_path, {"permissions": {}}, file="project/app/policy.json")
        with case("apart"), pytest.raises(SettingsError, match="apart from the roots"):
            settings(tmp_path, {"permissions": {"deny": ["Read(/a)"]}}, file="policies/policy.json")
        with case("missing"), pytest.raises(SettingsError, match="cannot read the policy"):
            load(["--policy", str(tmp_path / "none")], {})


RULES = st.sampled_from(
    (
        *("*", "Bash", "Bash(*)", "Bash(ls:*)", "Edit", "Edit(**)", "Edit(/app/**)", "Write", "NotebookEdit"),
        *("Read", "Read(//**)", "WebFetch", "WebFetch(domain:*)", "Agent", "Skill(x)", "mcp__a__*"),
    )
)
PERMISSIONS = st.fixed_dictionaries(
    {key: st.lists(RULES, max_size=4) for key in ("allow", "ask", "deny")},
    optional={"defaultMode": st.sampled_from(["default", "acceptEdits", "plan", "bypassPermissions"])},
)
APPROVALS = st.dictionaries(
    st.sampled_from(["bash", "shell", "write_file", "web", "ls"]), st.sampled_from(["approve", "ask", "deny"])
)
CONTENTS = st.fixed_dictionaries({"permissions": PERMISSIONS}) | st.fixed_dictionaries(
    {"approvals": APPROVALS}, optional={"sandbox": st.sampled_from(["failover", "containerOnly"])}
)


@pytest.mark.rounds
@settings_of_hypothesis(max_examples=rounds(20, 200))
@given(content=CONTENTS, mode=st.sampled_from(Permission))
def test_no_policy_lets_run_what_the_mode_or_the_operator_refuses(
    content: dict[str, Any], mode: Permission, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare = load(["--permission-mode", mode.flag], {}).settings
    try:
        made = with_agent_policy(settings(tmp_path_factory.getbasetemp(), content, mode=mode), real_tools())
    except SettingsError:
        # A mode above that of the server.
        return
    assert (made.permission_mode, made.network, made.sandbox) == (mode, bare.network, bare.sandbox)
    before, after = build_policy(bare, real_tools()), build_policy(made, real_tools())
    for entry in real_tools().entries.values():
        for level in Permission:
            request = Request(tool=entry.spec.name, level=level, subjects=(("a",),), needs=entry.spec.needs)
            if before.decide(request).action == "refuse":
                assert after.decide(request).action == "refuse"
