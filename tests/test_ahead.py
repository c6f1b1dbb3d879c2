"""Walls that stand before there is a command: used where they are right, replaced where something changed.

Real servers, as root and unprivileged.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.ahead import PLACEHOLDER
from tests.confinement import (
    BY_USER,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Server,
    scene,
    servers_when_needed,
    serving,
)
from tests.processes import arguments, processes, until

Servers = Callable[[str, str], Server]


@pytest.fixture(scope="module")
def servers() -> Generator[Servers]:
    with servers_when_needed() as server:
        yield server


def entered(server: Server) -> bool:
    """Whether a command enters walls that stand."""
    return PLACEHOLDER in server.bash("tr '\\0' '\\n' </proc/1/cmdline")


def around(base: Path) -> list[int]:
    """Every bubblewrap that was told of this folder."""
    return [
        pid
        for pid in processes()
        if "--die-with-parent" in (words := arguments(pid)) and any(str(base) in word for word in words)
    ]


async def standing(server: Server) -> None:
    """Wait until walls stand for the next command, as they do from the second on."""
    await until(lambda: entered(server))
    await until(lambda: bool(around(server.scene.base)))


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
@pytest.mark.parametrize("user", BY_USER)
async def test_a_command_enters_walls_that_stand_and_ends_like_any_other(
    user: str, mode: str, servers: Servers
) -> None:
    server = servers(user, mode)
    for script, says in (
        ("exit 7", "[exit status 7]"),
        ("kill -KILL $$", "137"),
        ("cat; cd d; pwd", f"{server.scene.root}/d\n"),
    ):
        await standing(server)
        assert says in server.bash(script)


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
@pytest.mark.parametrize("user", BY_USER)
async def test_a_command_does_nothing_to_the_placeholder(user: str, mode: str, servers: Servers) -> None:
    server = servers(user, mode)
    await standing(server)
    said = server.bash("kill -9 2; cat /proc/2/environ; cat /proc/2/fd/0; all=-1; kill -9 $all; echo alive")
    assert said.endswith("alive\n")
    assert "not permitted" in said
    assert said.count("Permission denied") == 2


async def test_a_search_leaves_them_to_a_command(servers: Servers) -> None:
    server = servers(USERS[-1], READ_ONLY)
    await standing(server)
    before = around(server.scene.base)
    assert "kept" in server.call("grep_search", pattern=".", path="kept", output_mode="content").text
    # They may still have been under construction, but they are the same.
    assert set(before) & set(around(server.scene.base))


@pytest.mark.parametrize("user", BY_USER)
async def test_what_comes_to_be_protected_later_is_protected(user: str, servers: Servers) -> None:
    server = servers(user, WORKSPACE_WRITE)
    await standing(server)
    settings = server.scene.root / "new" / ".vscode"
    settings.mkdir(parents=True)
    server.scene.own()
    assert "Read-only file system" in server.bash(f"echo evil >{settings}/tasks.json")
    assert list(settings.iterdir()) == []
    await standing(server)


async def test_what_comes_to_be_hidden_later_is_hidden(servers: Servers) -> None:
    server = servers(USERS[-1], READ_ONLY)
    secret = server.scene.home / ".netrc"
    for name in ("first", "replaced", "made anew"):
        await standing(server)
        if name == "made anew":
            secret.unlink()
        beside = secret.with_name("beside")
        beside.write_text(name, encoding="utf-8")
        server.scene.own()
        beside.rename(secret)
        assert server.bash(f"cat {secret}") == "(no output)"


MOUNTED = """
import subprocess, sys
from mcp_toolserver.runtime.sandbox.ahead import view
made = {"/": "machine", sys.argv[1]: "read-only"}
before = view(made)
assert view(made) == before
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", sys.argv[1] + "/inner"], check=True)
assert view(made) != before
"""


def test_walls_of_another_machine_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    apart = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
    subprocess.run([*apart, sys.executable, "-c", MOUNTED, str(tmp_path)], check=True)


@pytest.mark.parametrize("user", USERS)
async def test_walls_that_fell_are_built_again_and_none_outlive_the_server(user: str) -> None:
    with scene(user) as made:
        with serving(made, READ_ONLY) as server:
            await standing(server)
            await until(lambda: bool(around(made.base)))
            for pid in around(made.base):
                os.kill(pid, signal.SIGKILL)
            assert not entered(server)
            await standing(server)
        await until(lambda: not around(made.base))
