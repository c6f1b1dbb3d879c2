"""The mode is fixed when the server starts: no argument, file, variable, approval or failure raises it."""

import stat
import subprocess
import sys
from collections.abc import Generator, Sequence
from typing import Any

import mcp_types as mcp
import pytest

from benchmarks.client import Unanswered
from tests import ROOT
from tests.support.confinement import (
    CONFINED,
    FULL,
    READ_ONLY,
    SECRET,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    as_user,
    put,
    scene,
    serving,
)
from tests.support.live import Setup, connected, text
from tests.support.processes import Daemons
from tests.support.snapshot import differences, snapshot


@pytest.fixture
def at() -> Generator[Scene]:
    with scene(USERS[0]) as made:
        yield made


def assert_still(server: Server) -> None:
    """The server has the mode it was started with: it says so, and it is so."""
    target = server.scene.outside / "kept"
    before = server.scene.around(), snapshot(server.scene.root / "f", server.scene.root / ".git")
    server.bash(f"echo x > {target}; echo x > .git/x; true")
    if server.mode == READ_ONLY:
        assert "write_file" not in server.tools()
        server.bash("echo x > f; chmod 777 f; true")
    after = server.scene.around(), snapshot(server.scene.root / "f", server.scene.root / ".git")
    assert differences(before[0], after[0]) == []
    assert differences(before[1], after[1]) == []


# --- arguments, names, files, variables ------------------------------------------------------------------


@pytest.mark.parametrize("mode", CONFINED)
@pytest.mark.parametrize("_id", [pytest.param("", id="MODE01")])
def test_no_argument_of_a_call_raises_the_mode(at: Scene, mode: str, _id: str) -> None:
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
    with serving(at, mode) as server:
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
        assert [path for path in at.state.rglob("*") if path.is_file() and path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("_id", [pytest.param("", id="MODE02")])
def test_a_tool_above_the_mode_is_refused_under_each_of_its_names(at: Scene, _id: str) -> None:
    arguments = {"path": "f", "content": "x"}
    with serving(at, READ_ONLY) as server:
        before = at.seen()
        for name in ("write_file", "Write", "write"):
            assert name not in server.tools()
            said = server.call(name, **arguments)
            assert said.is_error
            assert WORKSPACE_WRITE in said.text
        for name in ("edit_file", "Edit", "edit", "MultiEdit"):
            assert server.call(name, path="f", old_string="o", new_string="0").is_error
        assert differences(before, at.seen()) == []


@pytest.mark.parametrize("mode", CONFINED)
@pytest.mark.parametrize("_id", [pytest.param("", id="MODE04")])
def test_nothing_in_the_workspace_raises_the_mode(at: Scene, mode: str, _id: str) -> None:
    toml = f'permission-mode = "{FULL}"\nsandbox = "off"\n[rules]\nallow = ["*"]\n'
    for name in ("mcp-toolserver.toml", ".mcp-toolserver.toml", ".config/mcp-toolserver/config.toml"):
        put(at.root / name, toml)
    put(at.root / ".env", f"MCP_TOOLSERVER_PERMISSION_MODE={FULL}\n")
    put(at.root / ".claude/settings.json", '{"permissions": {"allow": ["*"]}, "sandbox": {"enabled": false}}')
    put(at.root / "pyproject.toml", f'[tool.mcp-toolserver]\npermission-mode = "{FULL}"\n')
    at.own()
    inside = ("env", f"--chdir={at.root}", f"PYTHONPATH={ROOT}", "PYTHONSAFEPATH=1")
    with serving(at, mode, around=inside) as server:
        assert_still(server)


@pytest.mark.parametrize("_id", [pytest.param("", id="MODE04-config")])
def test_a_config_file_that_a_tool_could_change_stops_the_start(at: Scene, _id: str) -> None:
    config = put(at.root / "config.toml", 'permission-mode = "read-only"\n')
    assert "lies inside the root" in refused(at, READ_ONLY, "--config", str(config))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("permission-mode = ", id="MODE05"),
        pytest.param("\0\0\0\0", id="MODE05-zeros"),
        pytest.param('permission-mode = "everything"\n', id="MODE05-mode"),
        pytest.param('[rules]\ndeny = "bash"\n', id="MODE05-type"),
        pytest.param('[rules]\ndenny = ["bash"]\n', id="MODE05-key"),
        pytest.param("sandbox = false\n", id="MODE05-value"),
        pytest.param('permission-mode = "read-only"\npermission-mode = "read-only"\n', id="MODE05-twice"),
    ],
)
def test_a_broken_config_file_stops_the_start(at: Scene, content: str) -> None:
    config = put(at.base / "run/config.toml", content)
    assert str(config) in refused(at, READ_ONLY, "--config", str(config))


def refused(at: Scene, mode: str, *flags: str, around: Sequence[str] = ()) -> str:
    """Why a server does not start."""
    with pytest.raises(Unanswered) as ended, serving(at, mode, *flags, around=around):
        pass
    # The server's only answer: an internal error in place of the handshake.
    assert str(ended.value).startswith("initialize: {'code': -32603")
    assert "Traceback" not in str(ended.value)
    return str(ended.value)


@pytest.mark.parametrize("_id", [pytest.param("", id="MODE08")])
def test_no_tool_is_loaded_from_the_workspace(at: Scene, _id: str) -> None:
    marked = f"open({str(at.root / 'loaded')!r}, 'w')\n"
    for folder in (
        "tools",
        "plugins",
        "mcp_toolserver/tools/shell",
        ".mcp-toolserver/tools",
        ".claude/tools",
    ):
        put(at.root / folder / "evil.py", f"{marked}from mcp_toolserver.tools.shell.bash import TOOL\n")
        put(at.root / folder / "__init__.py", marked)
    inside = ("env", f"--chdir={at.root}", f"PYTHONPATH={ROOT}", "PYTHONSAFEPATH=1")
    with serving(at, WORKSPACE_WRITE, around=inside) as server:
        assert not {"evil", "tools.evil"} & set(server.tools())
        with pytest.raises(Unanswered):
            server.call("evil")
    assert not (at.root / "loaded").exists()


# --- layers that are missing, or fail ---------------------------------------------------------------------


NO_NAMESPACES = (
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh",
)  # fmt: skip
"""Runs its arguments where no further user namespace can be made, as in many containers."""


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("_id", [pytest.param("", id="MODE10")])
def test_without_user_namespaces_read_only_commands_still_change_nothing(user: str, _id: str) -> None:
    with scene(user) as at, serving(at, READ_ONLY, around=NO_NAMESPACES) as server:
        before = at.seen()
        assert server.tools()["bash"]["annotations"]["readOnlyHint"] is True
        harms = "echo x > f; rm g; chmod 777 f; touch f; git tag t; ln f h; echo x > ~/.bashrc"
        assert "harmless" in server.bash(f"{harms}; echo x > {at.outside}/x; echo harmless")
        assert "kept" in server.bash('t=$(mktemp) && echo kept > "$t" && cat "$t"')
        said = server.bash(f"cat /proc/{server.client.pid}/environ; env; ls {at.state}")
        assert SECRET not in said
        daemons = Daemons()
        server.bash(daemons.script)
        assert daemons.alive() == []
        assert differences(before, at.seen()) == []


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("_id", [pytest.param("", id="MODE10-write")])
def test_without_user_namespaces_no_command_may_write(user: str, _id: str) -> None:
    with scene(user) as at, serving(at, WORKSPACE_WRITE, around=NO_NAMESPACES) as server:
        assert "bash" not in server.tools()
        said = server.call("bash", command="echo x > f")
        assert said.is_error
        assert "SANDBOX_UNAVAILABLE" in said.text
        assert "hello" in (at.root / "f").read_text(encoding="utf-8")
        assert not server.call("write_file", path="new", content="x").is_error
        assert (at.root / "new").exists()


@pytest.mark.parametrize("_id", [pytest.param("", id="MODE13")])
@pytest.mark.parametrize("mode", CONFINED)
def test_a_background_command_keeps_the_sandbox_it_was_started_in(at: Scene, mode: str, _id: str) -> None:
    with serving(at, mode) as server:
        before = at.around()
        late = f"echo x > {at.outside}/late; echo x > .git/late; find ~ -delete; echo tried"
        script = f"until [ -e go ]; do sleep 0.05; done; {late}"
        task = server.start(script)
        (at.root / "go").touch()
        said = ""
        for _ in range(20):
            said = said if "tried" in said else server.call("TaskOutput", task_id=task, wait_ms=1000).text
        assert "tried" in said
        assert differences(before, at.around()) == []
        assert not (at.root / ".git/late").exists()


STACKED = """
import sys; sys.path.insert(0, sys.argv[1])
import os
from mcp_toolserver.runtime.sandbox.layers import kernel
for _ in range(int(sys.argv[2])):
    kernel.scope_signals()
os.execvp(sys.argv[3], sys.argv[3:])
"""


@pytest.mark.parametrize("mode", CONFINED)
@pytest.mark.parametrize("_id", [pytest.param("", id="MODE16")])
def test_a_full_stack_of_landlock_layers_stops_the_start(at: Scene, mode: str, _id: str) -> None:
    stacked = (sys.executable, "-c", STACKED, str(ROOT), "16")
    said = refused(at, mode, around=stacked)
    assert "16" in said or "layers" in said


# --- approvals -------------------------------------------------------------------------------------------


class Human:
    """Answers every question with yes, after doing something."""

    def __init__(self, act: Any = None) -> None:
        self.asked: list[str] = []
        self._act = act

    async def __call__(self, _: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        self.asked.append(params.message)
        if self._act:
            self._act()
        return mcp.ElicitResult(action="accept", content={"decision": "allow"})


def asking(at: Scene, mode: str, rules: str) -> Setup:
    config = put(at.home / "config.toml", rules)
    return Setup(root=at.root, home=at.home, mode=mode, flags=("--config", str(config)))


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("_id", [pytest.param("", id="STATE08")])
async def test_a_yes_never_exceeds_the_mode(at: Scene, era: str, _id: str) -> None:
    human = Human()
    setup = asking(at, READ_ONLY, '[rules]\nask = ["*"]\nallow = ["*"]\n')
    before = snapshot(at.root, at.outside)
    async with connected(setup, era=era, elicitation_callback=human) as client:
        assert (await client.call_tool("write_file", {"path": "f", "content": "x"})).is_error
        assert human.asked == []
        said = await client.call_tool("bash", {"command": f"echo x > f; echo x > {at.outside}/x; echo ran"})
        assert "ran" in text(said)
        assert len(human.asked) == 1
    assert differences(before, snapshot(at.root, at.outside)) == []


HIDING = f"echo one; \x1b[2K\x1b[1A\u202e{' ' * 3_000}touch ran\u200b && touch ran; # {'x' * 5_000}end"


@pytest.mark.parametrize("_id", [pytest.param("", id="STATE10")])
async def test_what_is_shown_for_approval_is_all_of_what_runs(at: Scene, _id: str) -> None:
    human = Human()
    setup = asking(at, WORKSPACE_WRITE, '[rules]\nask = ["bash"]\n')
    async with connected(setup, elicitation_callback=human) as client:
        await client.call_tool("bash", {"command": HIDING})
    shown = human.asked[0]
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert "\\x1b[2K" in shown
    assert "\\u202e" in shown
    assert "touch ran" in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("_id", [pytest.param("", id="STATE11")])
async def test_an_approval_is_not_carried_to_a_file_put_in_the_place(at: Scene, _id: str) -> None:
    """What was approved by name is decided anew by the kernel: no link put there meanwhile leads out."""

    def swap() -> None:
        (at.root / "g").unlink()
        (at.root / "g").symlink_to("../outside/kept")

    human = Human(swap)
    setup = asking(at, WORKSPACE_WRITE, '[rules]\nask = ["write_file"]\n')
    before = snapshot(at.outside)
    async with connected(setup, elicitation_callback=human) as client:
        assert (await client.call_tool("write_file", {"path": "g", "content": "x"})).is_error
    assert len(human.asked) == 1
    assert differences(before, snapshot(at.outside)) == []


def test_the_unprivileged_user_may_run_the_interpreter() -> None:
    with scene(USERS[-1]) as at:
        command = [*as_user(at), sys.executable, "-c", "import os, mcp_toolserver; print(os.getuid())"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
        assert done.stdout.strip() != "0"
