"""Decisions by the shipped `policy test` on the cases here, `policy explain`, and rules of projects."""

import json
import os
import re
import shlex
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.confinement import broker_policy
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.commands import policy as policy_command
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.policy.rules import Narrowing, Policy, Request, RuleContext, Rules, parse
from mcp_toolserver.runtime.executables import HostExecutables, find_host_executables
from mcp_toolserver.runtime.processes.broker_client import Broker, start_standalone_broker
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.custom_tools.test_requirement_sets import TOOLS
from tests.support.live import Setup, connected, text
from tests.support.process_layer import ran, server_command

CASES = Path(__file__).with_name("decisions.yaml")


def in_process(settings: Settings) -> Application:
    """A server that can run no command."""
    return build_application(settings, None, HostExecutables(), held_by=None)


@pytest.fixture(scope="module")
def build() -> Generator[policy_command.Build]:
    """Builds servers with a broker whose self-test says at which level commands are offered, which depends on
    the mode; none runs."""
    found = find_host_executables(os.environ, ())
    with ExitStack() as open_brokers:
        brokers: dict[object, Broker] = {}

        def built(settings: Settings) -> Application:
            mode = (settings.permission_mode, settings.granted, settings.network)
            if mode not in brokers:
                started = start_standalone_broker(broker_policy(settings, found))
                brokers[mode] = open_brokers.enter_context(closing(started))
            return build_application(settings, brokers[mode], found, held_by=None)

        yield built


@pytest.mark.requirement("GR-55", "GR-56", "GR-57", "GR-58", "DA-45", "DA-54")
def test_every_case_is_decided_as_it_says(
    build: policy_command.Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tools := tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    (config := tmp_path / "config.toml").write_text(f"tool-files = ['{tools}']", encoding="utf-8")
    flags = ("--config", str(config), "--state-dir", str(tmp_path / "state"))
    asked = load(["policy", "test", str(CASES), *flags], {"HOME": str(tmp_path)})
    status = policy_command.test(asked, build)
    printed = "".join(capsys.readouterr())
    assert status == 0, printed
    number = re.search(r"(\d+) cases, 0 different", printed)
    assert number, printed
    assert int(number[1]) >= 300


def test_a_difference_and_an_invalid_file_have_their_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cases.yaml"
    case = "  - {tool: bash, arguments: {command: ls}, verdict: refuse, rule: Bash}\n"
    cases = case + case.replace("refuse", "run") + case.replace("rule: Bash", "rule: Other")
    invocation = load(["policy", "test", str(file), "--root", str(tmp_path)], {})
    for content, *said in (
        (
            *(f"rules: {{deny: [Bash]}}\ncases:\n{cases}", "3 cases, 2 different"),
            *("verdict 'refuse' and not 'run'", "rule 'Bash' and not 'Other'"),
        ),
        ("cases: []\n", "0 cases"),
    ):
        file.write_text(content, encoding="utf-8")
        assert policy_command.test(invocation, in_process) == 1
        printed = "".join(capsys.readouterr())
        assert [one for one in said if one not in printed] == [], printed
    for content, says in (
        (f"rules: {{deny: [Nope]}}\ncases:\n{case}", "Nope.* does not exist"),
        *((one, r"cases\.yaml") for one in (f"cases:\n{case}".replace("verdict", "verdikt"), "rules: {}\n")),
        ("cases: [", r"cases\.yaml"),
        (None, r"cases\.yaml"),
    ):
        file.unlink() if content is None else file.write_text(content, encoding="utf-8")
        with pytest.raises(SettingsError, match=says):
            policy_command.test(invocation, in_process)


def test_explain_names_the_rule_with_its_line_and_each_stage_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root := tmp_path / "root").mkdir()
    (root / ".mcp-toolserver.toml").write_text('deny = [\n  "Write(*.lock)",\n]\n', encoding="utf-8")
    config = tmp_path / "c.toml"
    config.write_text("""[rules]\nask = ['Write(docs/**)']\nallow = ["Write(docs/**)"]\n""", encoding="utf-8")
    flags = ("--root", str(root), "--permission-mode", "workspace-write", "--config", str(config))
    for path, rule, line in (
        ("a.lock", "deny        Write(*.lock)", f"project, {root}/.mcp-toolserver.toml:2"),
        ("docs/a", "ask         Write(docs/**)", f"operator, {config}:2"),
    ):
        call: dict[str, JsonValue] = {"path": path, "content": "x"}
        asked = load(["policy", "explain", "Write", json.dumps(call), *flags], {"HOME": str(tmp_path)})
        assert policy_command.explain(in_process(asked.settings), asked, call) == 0
        printed = capsys.readouterr().out
        assert f"{rule} ({line})" in printed
        assert printed.startswith("find        write_file\nvalidate ")
    assert not (root / "docs").exists()


def test_the_page_shows_what_the_commands_print(
    build: policy_command.Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
    rules, shown, cases, tested = (
        block.partition("\n")[2]
        for block in page.split("\n```\n\n")[:4]
        for block in [block.split("```")[-1]]
    )
    (tmp_path / "project").mkdir()
    config, file = tmp_path / "policy.toml", tmp_path / "cases.yaml"
    file.write_text(cases, encoding="utf-8")

    def asked(content: str, printed: str, *flags: str) -> tuple[list[str], list[str]]:
        """The words of the command line that the page shows, and those that it says are printed."""
        config.write_text(content, encoding="utf-8")
        command, _, expected = printed.partition("\n")
        words = [word for word in shlex.split(command) if word not in ("$", "mcp-toolserver")]
        end = next(at for at, word in enumerate(words) if word.startswith("--"))
        named = [str(file) if word == file.name else word for word in words[:end]]
        return [*named, *flags, "--config", str(config)], expected.split()

    flags = ("--root", str(tmp_path / "project"), "--permission-mode", "workspace-write")
    words, expected = asked(rules, shown, *flags)
    explained = load(words, {"HOME": str(tmp_path)})
    policy_command.explain(build(explained.settings), explained, json.loads(words[3]))
    assert "".join(capsys.readouterr()).replace(f"{tmp_path}/", "").split() == expected
    words, expected = asked(f'{rules}\nallow = ["Bash(git push origin:*)"]\n', tested)
    ended = ran([*server_command(), *words], env={**os.environ, "HOME": str(tmp_path)})
    assert (ended.stdout + ended.stderr).replace(f"{tmp_path}/", "").split() == expected
    assert not (tmp_path / ".local/state/mcp-toolserver/audit").exists()


WORDS = RuleContext(canonical=lambda name: name, commands=frozenset({"bash"}))
ORDER = ("refuse", "ask", "run")
TEXTS: st.SearchStrategy[list[str]] = st.lists(
    st.sampled_from(
        ("*", "bash", "bash(git:*)", "bash(git push:*)", "bash(git push)", "write", "write(a)", "write(*)",
         "write(a/**)", "write(a/b)", "*(a/**)", "*(b)", "write([ab])")
    ),
    max_size=4,
)  # fmt: skip
SUBJECTS = {"bash": ("git push", "git", "ls"), "write": ("a", "a/b", "a/c", "b")}


def rules(texts: list[str]) -> Rules:
    return Rules(parse(text, WORDS) for text in texts)


@given(st.data())
def test_no_rule_of_a_project_and_no_narrowing_lets_more_happen(data: st.DataObject) -> None:
    level = st.sampled_from(Permission)
    ceiling, lists = data.draw(level), [rules(data.draw(TEXTS)) for _ in range(5)]
    base = Policy(
        ceiling=ceiling, granted=min(data.draw(level), ceiling), deny=lists[0], ask=lists[1], allow=lists[2]
    )
    tightened = Policy(
        ceiling=base.ceiling, granted=base.granted, allow=base.allow,
        deny=Rules((*base.deny, *lists[3])), ask=Rules((*base.ask, *lists[4])),
    )  # fmt: skip
    narrowing = Narrowing(source="x", ceiling=data.draw(level), tools=data.draw(st.none() | TEXTS.map(rules)))
    tool = data.draw(st.sampled_from(sorted(SUBJECTS)))
    subjects = data.draw(st.lists(st.sampled_from(SUBJECTS[tool]), max_size=3))
    request = Request(tool=tool, level=data.draw(level), subjects=tuple((one,) for one in subjects))
    action = base.decide(request).action
    assert (request.level <= ceiling) or action == "refuse"
    before = ORDER.index(action)
    assert ORDER.index(tightened.decide(request).action) <= before
    assert ORDER.index(base.narrowed((narrowing,)).decide(request).action) <= before


async def test_rules_of_a_project_bind_tools_and_commands_and_change_with_the_file(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    file = setup.root / ".mcp-toolserver.toml"
    first = 'deny = ["Write(*.lock)", "Read(secrets/**)"]\nhide = ["NotebookEdit"]\n'
    file.write_text(first, encoding="utf-8")
    (setup.root / "secrets").mkdir()
    (setup.root / "secrets/key").write_text("the key\n", encoding="utf-8")
    async with connected(setup) as client:

        async def call(tool: str, **arguments: str) -> str:
            return text(await client.call_tool(tool, arguments))

        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert "write_file" in listed
        assert "NotebookEdit" not in listed
        assert "denied here by the rule Write(*.lock)" in await call("write_file", path="a.lock", content="x")
        assert "denied here by the rule Read(secrets/**)" in await call("read_file", path="secrets/key")
        assert "the key" not in await call("bash", command="cat secrets/key")
        assert "secrets" not in await call("grep_search", pattern="key")
        # Neither a tool nor a command changes the file.
        assert "protected" in await call("write_file", path=file.name, content="")
        for command in (f"echo > {file.name}", f"mv {file.name} x", f"rm {file.name}"):
            await call("bash", command=command)
        assert file.read_text(encoding="utf-8") == first

        file.write_text(f'{first}ask = ["Bash(make:*)"]\n', encoding="utf-8")
        assert "The rule Bash(make:*) wants it approved" in await call("bash", command="make")
        assert await call("bash", command="echo on") == "on\n"
        file.write_text(f'{first}allow = ["Bash"]\n', encoding="utf-8")
        for said in (await call("bash", command="echo on"), await call("ls", path=".")):
            assert f"{file}:3: unknown key 'allow'" in said
        file.write_text(first.replace("secrets", "s*"), encoding="utf-8")
        assert "hides more files than at the start; restart the server" in await call("ls", path=".")
        file.unlink()
        assert await call("bash", command="echo on") == "on\n"
        # What was hidden at the start stays hidden.
        assert "the key" not in await call("bash", command="cat secrets/key")


def test_doctor_names_rules_without_effect_invalid_files_and_read_only_roots(tmp_path: Path) -> None:
    root, kept = tmp_path / "root", tmp_path / "kept"
    for folder in (root, kept):
        folder.mkdir()
    (root / ".mcp-toolserver.toml").write_text("deny = 1\n", encoding="utf-8")
    config = tmp_path / "c.toml"
    config.write_text(
        '[rules]\ndeny = ["WebFetch", "Write(/nowhere/**)", "Write(*.lock)", "Bash(rm:*)"]\n'
        'ask = ["WebFetch(example.com)", "Bash(git push:*)"]\n'
        'allow = ["Read(docs/**)", "container_shell", "Bash(git push origin:*)", "mcp__files"]\n',
        encoding="utf-8",
    )
    flags = ["--json", "--root", str(root), "--permission-mode", "workspace-write", "--config", str(config)]
    flags += ["--root", f"{kept}=read-only"]
    ended = ran([*server_command(), "doctor", *flags], env={**os.environ, "HOME": str(tmp_path)})
    assert ended.returncode == 2, ended.stderr
    findings = json.loads(ended.stdout)["findings"]
    effectless = [one["detail"] for one in findings if one["what"] == "rules without effect"]
    found = {detail.partition(" (")[0] for detail in effectless}
    assert found == {"WebFetch(example.com)", "Write(/nowhere/**)", "Read(docs/**)", "container_shell"}
    assert f"{root}/.mcp-toolserver.toml:1: it must be a list of texts" in ended.stdout
    assert f"no tool or command writes in {kept}" in ended.stdout
