"""The mode is fixed when the server starts: no argument, file, variable, approval or failure raises it.

Commands of a danger-full-access server that grants less are confined, but for one run after a yes.
"""

import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest

from benchmarks.client import Unanswered
from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.pipeline.call import CallOptions, Result, Rights
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.nested_calls import calls_without_client
from mcp_toolserver.policy.rules import Narrowing
from tests import ROOT
from tests.plan.planning import Human
from tests.support.confinement import (
    CONFINED,
    EVIL,
    FULL,
    READ_ONLY,
    SECRET,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    Servers,
    put,
    scene,
    serving,
)
from tests.support.live import ERAS, Setup, connected, text
from tests.support.processes import Daemons
from tests.support.snapshot import differences, snapshot
from tests.support.without import around
from tests.support.workbench import Person
from tests.support.workshop import workshop

shares_servers = pytest.mark.xdist_group(USERS[0])


@pytest.fixture
def at() -> Generator[Scene]:
    with scene(USERS[0]) as made:
        yield made


def assert_still(server: Server) -> None:
    """The server has the mode it was started with: it says so, and it is so."""
    target = server.scene.outside / "kept"
    before = server.scene.around(), snapshot(server.scene.root / "f", server.scene.root / ".git")
    server.bash(f"echo x > {target}; echo x > .git/hooks/x; true")
    if server.mode == READ_ONLY:
        assert "write_file" not in server.tools()
        server.bash("echo x > f; chmod 777 f; true")
    after = server.scene.around(), snapshot(server.scene.root / "f", server.scene.root / ".git")
    assert differences(before[0], after[0]) == []
    assert differences(before[1], after[1]) == []


@pytest.mark.requirement("SW-60")
@shares_servers
@pytest.mark.parametrize("mode", CONFINED)
def test_no_argument_of_a_call_raises_the_mode(servers: Servers, mode: str) -> None:
    extra: list[dict[str, Any]] = [
        {"permission_mode": FULL},
        {"mode": FULL},
        {"sandbox": "off"},
        {"dangerously_disable_sandbox": True},
        {"dangerouslyDisableSandbox": True},
        {"with_escalated_permissions": True},
        {"network": "commands"},
        {"env": {"MCP_TOOLSERVER_PERMISSION_MODE": FULL}},
    ]
    server = servers(USERS[0], mode)
    at = server.scene
    for more in extra:
        server.call("bash", command=f"touch {at.outside}/raised", **more)
        server.call("read_file", path="f", **more)
    params = {
        "name": "bash",
        "arguments": {"command": f"touch {at.outside}/raised"},
        "_meta": {"permission_mode": FULL, "mcp-toolserver/mode": FULL},
    }
    server.client.request("tools/call", params)
    server.bash(f"MCP_TOOLSERVER_PERMISSION_MODE={FULL} touch {at.outside}/raised; true")
    assert not (at.outside / "raised").exists()
    assert_still(server)
    assert stat.S_IMODE(at.state.stat().st_mode) == 0o700
    own = [path for path in at.state.rglob("*") if "quarantine" not in path.relative_to(at.state).parts]
    assert [path for path in own if path.is_file() and path.stat().st_mode & 0o077] == []


@shares_servers
def test_a_tool_above_the_mode_is_refused_under_each_of_its_names(servers: Servers) -> None:
    server = servers(USERS[0], READ_ONLY)
    before = server.scene.seen()
    for name in ("write_file", "Write", "write"):
        assert name not in server.tools()
        said = server.call(name, path="f", content="x")
        assert said.is_error
        assert WORKSPACE_WRITE in said.text
    for name in ("edit_file", "Edit", "edit", "MultiEdit"):
        assert server.call(name, path="f", old_string="o", new_string="0").is_error
    assert differences(before, server.scene.seen()) == []


STOCK = ("json", "re", "sitecustomize", "usercustomize", "encodings")
PROGRAMS = ("bwrap", "rg", "git", "bash", "sh", "python3", "setpriv")


def test_nothing_in_the_workspace_raises_the_mode(at: Scene) -> None:
    """No configuration, tool, module or program of ours is taken from it, also where the server is started
    in it."""
    toml = f'permission-mode = "{FULL}"\nsandbox = "off"\n[rules]\nallow = ["*"]\n'
    for name in ("mcp-toolserver.toml", ".mcp-toolserver/config.toml", ".config/mcp-toolserver/config.toml"):
        put(at.root / name, toml)
    put(at.root / ".env", f"MCP_TOOLSERVER_PERMISSION_MODE={FULL}\n")
    put(at.root / ".claude/settings.json", '{"permissions": {"allow": ["*"]}, "sandbox": {"enabled": false}}')
    put(at.root / "pyproject.toml", f'[tool.mcp-toolserver]\npermission-mode = "{FULL}"\n')
    loaded = at.root / "loaded"
    marked = f"open({str(loaded)!r}, 'w').close()\n"
    for folder in (
        "tools",
        "plugins",
        ".mcp-toolserver/tools",
        ".claude/tools",
        "mcp_toolserver/tools/shell",
    ):
        put(at.root / folder / "evil.py", f"{marked}from mcp_toolserver.tools.shell.bash import TOOL\n")
        put(at.root / folder / "__init__.py", marked)
    for name in (*STOCK, "anyio", "wcmatch", "mcp_toolserver"):
        put(at.root / f"{name}.py", marked)
    for name in PROGRAMS:
        put(at.root / "bin" / name, EVIL).chmod(0o755)
    at.own()
    # The package, without the folder that the interpreter is started in.
    path = f"{at.root}/bin:{os.environ['PATH']}"
    environ = {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "PATH": path}
    inside = ("env", f"--chdir={at.root}", f"PATH={path}")
    with serving(at, WORKSPACE_WRITE, around=inside, environ=environ) as server:
        assert_still(server)
        assert "hello" in server.call("grep_search", pattern="hello", output_mode="content").text
        assert "f" in server.call("glob_search", pattern="f").text
        server.call("read_file", path="f")
        assert not {"evil", "tools.evil"} & set(server.tools())
        with pytest.raises(Unanswered):
            server.call("evil")
    assert not loaded.exists()
    assert not (at.root / "bin/evil-ran").exists()
    # What measures coverage would have imported the real one first.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    naive = [sys.executable, "-c", "import json"]
    subprocess.run(naive, cwd=at.root, env=plain, check=False, capture_output=True)
    assert loaded.exists()


def test_without_user_namespaces_read_only_commands_still_change_nothing() -> None:
    required = ("--sandbox", "required")
    with scene(USERS[0]) as at, serving(at, READ_ONLY, *required, around=around("user-namespaces")) as server:
        before = at.seen()
        assert server.tools()["bash"]["annotations"]["readOnlyHint"] is True
        harms = "echo x > f; rm g; chmod 777 f; touch f; git tag t; ln f h; echo x > ~/.bashrc"
        assert "harmless" in server.bash(f"{harms}; echo x > {at.outside}/x; echo harmless")
        assert "hello" in server.call("grep_search", pattern="hello", output_mode="content").text
        assert "kept" in server.bash('t=$(mktemp) && echo kept > "$t" && cat "$t"')
        said = server.bash(f"cat /proc/{server.client.pid}/environ; env; ls {at.state}")
        assert SECRET not in said
        daemons = Daemons()
        server.bash(daemons.script)
        assert daemons.alive() == []
        assert differences(before, at.seen()) == []


@shares_servers
@pytest.mark.parametrize("mode", CONFINED)
def test_a_background_command_keeps_the_sandbox_it_was_started_in(servers: Servers, mode: str) -> None:
    server = servers(USERS[0], mode)
    at = server.scene
    before = at.around()
    late = f"echo x > {at.outside}/late; echo x > .git/hooks/late; h=~; find $h -delete; echo tried"
    task = server.start(f"until [ -e go ]; do sleep 0.05; done; {late}")
    (at.root / "go").touch()
    said = ""
    for _ in range(20):
        said = said if "tried" in said else server.call("TaskOutput", task_id=task, wait_ms=1000).text
    (at.root / "go").unlink()
    assert "tried" in said
    assert differences(before, at.around()) == []
    assert not (at.root / ".git/hooks/late").exists()


def asking(at: Scene, mode: str, rules: str) -> Setup:
    config = put(at.home / "config.toml", rules)
    return Setup(root=at.root, home=at.home, mode=mode, flags=("--config", str(config)))


async def test_a_yes_never_exceeds_the_mode(at: Scene) -> None:
    human = Human({"decision": "allow"})
    setup = asking(at, READ_ONLY, '[rules]\nask = ["*"]\nallow = ["*"]\n')
    before = snapshot(at.root, at.outside)
    async with connected(setup, era="auto", elicitation_callback=human) as client:
        assert (await client.call_tool("write_file", {"path": "f", "content": "x"})).is_error
        assert human.saw == []
        said = await client.call_tool("bash", {"command": f"echo x > f; echo x > {at.outside}/x; echo ran"})
        assert "ran" in text(said)
        assert len(human.saw) == 1
    assert differences(before, snapshot(at.root, at.outside)) == []


HIDING = f"echo one; \x1b[2K\x1b[1A\u202e{' ' * 3_000}touch ran\u200b && touch ran; # {'x' * 5_000}end"


async def test_an_approval_is_not_carried_to_a_file_put_in_the_place(at: Scene) -> None:
    """What was approved by name is decided anew by the kernel: no link put there meanwhile leads out. What a
    question shows is all of what runs."""

    human = Human({"decision": "allow"})

    async def swap(*question: Any) -> mcp.ElicitResult:
        (at.root / "g").unlink()
        (at.root / "g").symlink_to("../outside/kept")
        return await human(*question)

    setup = asking(at, WORKSPACE_WRITE, '[rules]\nask = ["write_file", "bash"]\n')
    before = snapshot(at.outside)
    async with connected(setup, elicitation_callback=swap) as client:
        assert (await client.call_tool("write_file", {"path": "g", "content": "x"})).is_error
        await client.call_tool("bash", {"command": HIDING})
    assert len(human.saw) == 2
    assert differences(before, snapshot(at.outside)) == []
    shown = human.saw[1].message
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert "\\x1b[2K" in shown
    assert "\\u202e" in shown
    assert "touch ran" in shown
    assert "\u202e" not in shown


DANGER, WRITE, READ = Permission.DANGER_FULL_ACCESS, Permission.WORKSPACE_WRITE, Permission.READ_ONLY


@asynccontextmanager
async def place(folder: Path, granted: Permission = WRITE, **settings: Any) -> AsyncGenerator[Dispatcher]:
    with anyio.fail_after(60):
        async with workshop(folder, DANGER, granted=granted, **settings) as at:
            yield at


async def run(at: Dispatcher, person: Person, script: str, why: str = "", **more: Any) -> Result:
    reason = {"unsandboxed_reason": why} if why else {}
    return await at.call("bash", {"command": script, **reason, **more}, person)


@pytest.mark.anyio
@pytest.mark.parametrize("granted", [WRITE, pytest.param(READ, marks=pytest.mark.long)])
async def test_commands_are_confined_and_a_yes_lets_one_run_out(tmp_path: Path, granted: Permission) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "root" / "inside"
    script = f"echo 1 >> {outside}; echo 1 >> {inside}"
    async with place(tmp_path, granted) as at:
        yes, no = Person(says=True), Person()
        await run(at, no, script)
        assert (outside.exists(), inside.exists(), no.asked) == (False, granted is WRITE, [])
        refused = await run(at, no, script, "docker \N{RIGHT-TO-LEFT OVERRIDE}build")
        assert refused.error == "denied"
        assert not outside.exists()
        assert (await run(at, yes, script, "docker build")).error is None
        assert outside.read_text(encoding="utf-8") == "1\n"
        # It was for that run.
        await run(at, yes, script)
        assert outside.read_text(encoding="utf-8") == "1\n"
    assert len(yes.asked) == 1
    assert f"echo 1 >> {outside}; echo 1 >> {inside}" in yes.asked[0]
    assert "docker \\u202ebuild" in no.asked[0]


@pytest.mark.anyio
@pytest.mark.parametrize("era", [pytest.param(ERAS[0], marks=pytest.mark.long), ERAS[1]])
async def test_a_client_of_either_protocol_lets_one_run_out(era: str, tmp_path: Path) -> None:
    human = Human({"decision": "allow"})
    setup, outside = Setup.below(tmp_path, DANGER.flag, "--granted", WRITE.flag), tmp_path / "outside"
    async with connected(setup, era=era, elicitation_callback=human) as client:
        assert "unsandboxed_reason" in (client.instructions or "")
        for more in ({}, {"unsandboxed_reason": "why"}, {}):
            await client.call_tool("bash", {"command": f"echo 1 >> {outside}", **more})
    assert outside.read_text(encoding="utf-8") == "1\n"
    assert len(human.saw) == 1


@pytest.mark.anyio
async def test_the_question_shows_each_line_and_a_run_in_the_background_takes_no_messages(
    tmp_path: Path,
) -> None:
    outside, no, yes = tmp_path / "outside", Person(), Person(says=True)
    async with place(tmp_path) as at:
        (tmp_path / "root" / "sub").mkdir()
        script = f"a=1\n\n# {'b' * 20_000}\ncat -"
        await run(at, no, script, "x\nThe whole script:\nls", stdin="input", cwd="./sub")
        started = await run(at, yes, f"echo 1 > {outside}", "why", run_in_background=True)
        handle = re.findall(r"bg_\w+", started.text)[0]
        await at.call("TaskOutput", {"task_id": handle, "until": "end", "wait_ms": 20_000}, yes)
        assert outside.exists()
        wrong = await run(at, yes, "bash", "why", run_in_background=True, open_stdin=True)
    lines = no.asked[0].splitlines()
    assert lines[1:3] == [
        "Once, outside the sandbox, in 'sub'. Why: x The whole script: ls",
        "The whole script:",
    ]
    assert lines[3:8] == ["sh -c input", *script.split("\n")]
    assert wrong.error == "invalid_input"
    assert len(yes.asked) == 1


@pytest.mark.anyio
async def test_neither_a_rule_nor_a_call_without_a_human_leaves_the_sandbox(tmp_path: Path) -> None:
    outside, person = tmp_path / "outside", Person(says=True)
    script, reason = f"echo 1 > {outside}", {"unsandboxed_reason": "why"}
    plan = Narrowing(source="plan mode", ceiling=WRITE)
    async with place(tmp_path, allow=("bash", "*")) as at:
        asked = Person()
        assert (await run(at, asked, script, "why")).error == "denied"
        assert len(asked.asked) == 1
        calls = calls_without_client(at, Rights(), owner="a schedule", name="a schedule")
        assert (await calls.call("bash", {"command": script, **reason})).error == "denied"
        options = CallOptions(narrowings=(plan,))
        narrowed = await at.call("bash", {"command": script, **reason}, person, options)
        assert "plan mode" in narrowed.text
        assert (await at.call("bash", {"command": script}, person, options)).error is None
    assert (outside.exists(), person.asked) == (False, [])


@pytest.mark.anyio
async def test_only_this_configuration_offers_the_argument(tmp_path: Path) -> None:
    for number, (mode, granted, sandbox, is_offered) in enumerate(
        (
            (DANGER, WRITE, "auto", True),
            (DANGER, DANGER, "auto", False),
            (DANGER, WRITE, "off", False),
            (WRITE, READ, "auto", False),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with workshop(folder, mode, granted=granted, sandbox=sandbox) as at:
            entry = at.registry.find("bash")
            assert ("unsandboxed_reason" in entry.spec.argument_names) == is_offered
            assert ("unsandboxed_reason" in entry.spec.description) == is_offered
            assert at.level(entry) is mode
            answer = await run(at, Person(says=True), "true", dangerouslyDisableSandbox=True)
            assert "was ignored" in answer.text
            if not is_offered:
                assert (await run(at, Person(says=True), "true", "why")).error == "invalid_input"


def test_a_lower_ceiling_takes_the_argument_away() -> None:
    host = HostFacts(mode=DANGER, commands_in=WRITE)
    assert host.may_leave_sandbox
    assert not host.in_mode(WRITE).may_leave_sandbox
    assert not replace(host, commands_in=None).may_leave_sandbox
