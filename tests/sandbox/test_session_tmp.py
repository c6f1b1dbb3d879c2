"""The temporary folder that the commands and file tools of a session share: it lasts, and it is private.

Real servers in both confined modes, as root and unprivileged, and real clients over stdio and HTTP.
"""

import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.call_scope import LOCAL, UNCONNECTED
from mcp_toolserver.runtime.processes.broker_client import Broker, BrokerPolicy, start_standalone_broker
from mcp_toolserver.runtime.processes.sessions import IDLE_SECONDS, Sessions
from mcp_toolserver.runtime.sandbox.broker.limit_settings import session_size
from mcp_toolserver.runtime.sandbox.broker.messages import Script
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.layers.environment import command_environment
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.mounts.temporary import may_share
from tests.sandbox.sessions import called, each_once, holders, two_sessions
from tests.support import live
from tests.support.confinement import (
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Server,
    as_user,
    by_mode,
    by_user,
    put,
    scene,
    serving,
    visible_folder,
)
from tests.support.processes import asked, outcome, until

Servers = Callable[[str, str], Server]

# --- it lasts, for commands and file tools ---------------------------------------------------------------


def test_caches_are_there_unless_the_operator_has_a_place_for_them(tmp_path: Path) -> None:
    config = put(tmp_path / "config.toml", 'command-environment = ["GOCACHE"]\n')
    environ = {"GOCACHE": "/a/place", "UV_CACHE_DIR": "/not/passed", "MCP_TOOLSERVER_CONFIG": str(config)}
    with scene(USERS[0]) as made, serving(made, WORKSPACE_WRITE, environ=environ) as server:
        assert server.bash("echo $GOCACHE $UV_CACHE_DIR $npm_config_cache") == "/a/place /tmp/.uv /tmp/.npm\n"


@each_once
def test_what_one_command_leaves_the_next_one_finds(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    server.bash("echo kept > $TMPDIR/kept && mkdir -p /tmp/folder")
    assert server.bash("cat /tmp/kept") == "kept\n"
    session = server.call("REPL", language="shell", code="cat $TMPDIR/kept", session="new").text
    assert session.startswith("kept\n")
    assert server.bash("pwd", cwd="/tmp/folder") == "/tmp/folder\n"
    assert not os.path.lexists("/tmp/kept")


@each_once
def test_file_tools_read_it_under_its_own_name(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    server.bash("mkdir -p /tmp/read/in && echo needle > /tmp/read/in/file && ln -sf in /tmp/read/link")
    assert "needle" in server.call("read_file", path="/tmp/read/in/file").text
    assert "needle" in server.call("read_file", path="/tmp/read/link/file").text
    assert "in/" in server.call("ls", path="/tmp/read").text
    assert "/tmp/read/in/file" in server.call("grep_search", pattern="needle", path="/tmp/read").text
    assert "/tmp/read/in/file" in server.call("glob_search", pattern="**/file", path="/tmp/read").text
    missing = server.call("read_file", path="/tmp/read/missing")
    assert missing.is_error
    assert "/tmp/read/missing" in missing.text


@by_user
def test_file_tools_write_in_it(servers: Servers, user: str) -> None:
    server = servers(user, WORKSPACE_WRITE)
    written = server.call("write_file", path="/tmp/written/by/tool", content="one\n")
    assert not written.is_error, written.text
    edited = server.call("edit_file", path="/tmp/written/by/tool", old_string="one", new_string="two")
    assert not edited.is_error, edited.text
    assert server.bash("cat /tmp/written/by/tool && echo three > /tmp/written/by/tool") == "two\n"
    assert "three" in server.call("read_file", path="/tmp/written/by/tool").text


@by_user
@by_mode
def test_no_link_in_it_leads_a_file_tool_out(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    target = server.scene.outside / "target"
    server.bash(
        f"mkdir -p /tmp/links; cd /tmp/links; ln -sf {target} absolute; ln -sfn {target.parent} folder; "
        f"ln -sf ../..{target} relative; ln -sfn .. up; ln -sf /proc/self/environ proc"
    )
    for name in ("absolute", "folder/target", "relative", "up/..", f"up/..{target}", "proc"):
        for tool, more in (("read_file", {}), ("write_file", {"content": "changed"})):
            said = server.call(tool, path=f"/tmp/links/{name}", **more)
            assert said.is_error, said.text
    assert target.read_text(encoding="utf-8") == "outside\n"
    assert "outside" not in server.call("grep_search", pattern="outside", path="/tmp/links").text


def test_it_is_there_with_the_network_of_the_machine() -> None:
    with scene(USERS[-1]) as made, serving(made, READ_ONLY, "--network", "commands") as server:
        server.bash("echo kept > /tmp/kept")
        assert server.bash("cat /tmp/kept") == "kept\n"


@each_once
def test_its_size_is_bounded(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    said = server.bash("df --block-size=1 --output=size /tmp | tail -1; df --output=itotal /tmp | tail -1")
    size, files = map(int, said.split())
    assert size == session_size()
    assert 0 < files < 1_000_000
    full = server.bash("head -c 2G /dev/zero > /tmp/full; echo status $?; stat -c %s /tmp/full; rm /tmp/full")
    assert "No space left" in full
    assert "status 1" in full
    assert server.bash("echo again > /tmp/again && cat /tmp/again") == "again\n"


# --- it is private, and it goes --------------------------------------------------------------------------


@pytest.mark.parametrize("era", live.ERAS)
async def test_another_session_does_not_see_it(url: str, era: str) -> None:
    async with two_sessions(url, era) as (one, other):
        await called(one, "bash", command="echo mine > /tmp/mine")
        assert "mine" in await called(one, "read_file", path="/tmp/mine")
        assert "no '/tmp/mine'" in await called(other, "read_file", path="/tmp/mine")
        assert "mine" not in await called(other, "bash", command="ls /tmp")
        await called(other, "bash", command="echo theirs > /tmp/mine")
        assert await called(one, "bash", command="cat /tmp/mine") == "mine\n"


def held(folder: Path) -> list[str]:
    """The processes that hold a folder open, or something below it."""
    return holders(lambda link: link.startswith(str(folder)))


@pytest.mark.skipif(os.geteuid() != 0, reason="who holds it can be seen by root alone")
async def test_it_goes_with_the_session() -> None:
    with scene(USERS[-1]) as made:
        folder = made.state / "temporary"
        setup = live.Setup(root=made.root, home=made.base, around=as_user(made))
        with live.serving(setup, "http") as url:
            async with live.connected_to(url, "http", mode="legacy") as client:
                await called(client, "bash", command="echo mine > /tmp/mine")
                assert "mine" in await called(client, "read_file", path="/tmp/mine")
                assert len(held(folder)) > 1
            await until(lambda: not held(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="who holds it can be seen by root alone")
@by_user
async def test_it_goes_with_a_server_that_is_killed(user: str) -> None:
    with scene(user) as made, serving(made, READ_ONLY) as server:
        server.bash("head -c 1M /dev/zero > /tmp/large")
        assert held(made.state / "temporary")
        os.kill(server.client.pid, 9)
        await until(lambda: not held(made.state / "temporary"))
        assert list((made.state / "temporary").iterdir()) == []


# --- where there is none ---------------------------------------------------------------------------------


def test_it_is_shared_where_no_root_meets_it() -> None:
    assert all(map(may_share, (("/srv/a", "/home/b"), ("/tmpa",))))
    assert not any(map(may_share, (("/tmp",), ("/tmp/a",), ("/srv/a", "/tmp/a/b"), ("/",))))


def test_with_a_root_in_it_each_command_has_its_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    assert str(root).startswith("/tmp/")
    with scene(USERS[0]) as made, serving(made, WORKSPACE_WRITE, roots=(root,)) as server:
        server.bash("echo gone > /tmp/gone")
        assert "missing" in server.bash("cat /tmp/gone || echo missing")
        assert server.call("read_file", path="/tmp/gone").is_error
        assert server.bash("pwd") == f"{root}\n"


# --- idle sessions ---------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Generator[tuple[Broker, str]]:
    """A broker that confines commands, and its root."""
    with visible_folder() as folder:
        (folder / "root").mkdir()
        sandbox = SandboxSpec(
            mode=READ_ONLY,
            roots=(str(folder / "root"),),
            home="/nonexistent",
            state=str(folder / "state"),
            programs=candidates(os.environ["PATH"], ()),
        )
        policy = BrokerPolicy(sandbox=sandbox, environment=command_environment(os.environ))
        started = start_standalone_broker(policy)
        try:
            assert started.proof.shares_session, started.proof.reasons
            yield started, str(folder / "root")
        finally:
            started.close()


def test_only_a_session_without_a_connection_ends_when_it_is_idle(broker: tuple[Broker, str]) -> None:
    at, root = broker
    clock = [0.0]
    sessions = Sessions(at, (root,), now=lambda: clock[0])
    owners = (LOCAL, "connection 1", f"{UNCONNECTED} a 1")

    def run(owner: str, script: str) -> str:
        _, said = outcome(at, Script(script=script, timeout=10, session=owner), cwd=root)
        return said

    for owner in owners:
        run(owner, "echo kept > /tmp/kept")
        folder = sessions.temporary(owner)
        assert folder is not None
        assert folder.root() is not None
    clock[0] = IDLE_SECONDS - 1
    sessions.expire()
    assert [run(owner, "cat /tmp/kept 2>&1") for owner in owners] == ["kept\n"] * 3

    def is_gone(seconds: float) -> bool:
        clock[0] += IDLE_SECONDS + 1
        sessions.expire()
        # The broker ends it when the supervisor of the last command has gone, which may be after its answer.
        time.sleep(seconds)
        gone = run(owners[2], "cat /tmp/kept 2>&1") != "kept\n"
        sessions.temporary(owners[2])
        return gone

    assert any(is_gone(0.1 * 2**trial) for trial in range(9))
    assert [run(owner, "cat /tmp/kept 2>&1") for owner in owners[:2]] == ["kept\n"] * 2


def test_an_idle_session_with_a_command_running_does_not_end(broker: tuple[Broker, str]) -> None:
    at, root = broker
    clock = [0.0]
    sessions = Sessions(at, (root,), now=lambda: clock[0])
    owner = f"{UNCONNECTED} a 1"
    sessions.temporary(owner)
    waiting = Script(script="echo kept > /tmp/kept; echo on; exec sleep 60", timeout=60, session=owner)
    with asked(at, waiting, cwd=root) as command:
        assert command.line() == "on"
        clock[0] = IDLE_SECONDS + 1
        sessions.expire()
        _, said = outcome(at, Script(script="cat /tmp/kept", timeout=10, session=owner), cwd=root)
    assert said == "kept\n"
