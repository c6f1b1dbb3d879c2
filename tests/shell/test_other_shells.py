"""Commands in containers and in PowerShell. Programs in the place of an engine and of PowerShell write down
their arguments and run a shell.
"""

import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol import translate
from mcp_toolserver.runtime.containers.containers import Engine
from mcp_toolserver.runtime.executables import HostExecutables, find_host_executables
from mcp_toolserver.runtime.which import POWERSHELLS, find_program
from mcp_toolserver.text.shell.words import argument
from mcp_toolserver.text.shell.words import program as script_for
from tests.support.confinement import visible_folder
from tests.support.processes import Daemons, call, until
from tests.support.workshop import names, program, workshop

STAND_IN = """
here=$(dirname "$0")
printf '%s\\0' "$@" >>"$here/argv"; printf '\\n\\0' >>"$here/argv"
case $1 in
create)
    if [ -e "$here/broken" ]; then echo 'Cannot connect to the daemon.' >&2; exit 125; fi
    while [ "$1" != --name ]; do shift; done
    printf '%s' "${@: -1}" >"$here/$2" ;;
start) exec sh -c "$(cat "$here/$3")" ;;
*) rm "$here/$3" ;;
esac
"""
IMAGE = "ghcr.io/astral-sh/uv:python3.13-alpine3.23"


@dataclass(frozen=True)
class Stand:
    """A server, and the stand-in of its engine."""

    server: Dispatcher
    folder: Path

    @property
    def argvs(self) -> list[list[str]]:
        """The argument lists that the engine got."""
        file = self.folder / "bin/argv"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [words.split("\0")[:-1] for words in text.split("\n\0")[:-1]]

    @property
    def left(self) -> set[str]:
        """Containers that have not been removed."""
        return {file.name for file in (self.folder / "bin").glob("mcp-toolserver-*")}

    async def run(self, command: str, **more: Any) -> Any:
        return await call(self.server, "container_shell", command=command, **more)


@asynccontextmanager
async def standing(folder: Path, name: str = "docker", **settings: Any) -> AsyncGenerator[Stand]:
    engine = program(folder / "bin", name, STAND_IN)
    async with workshop(folder, found=HostExecutables(engine=engine), **settings) as server:
        yield Stand(server, folder)


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncGenerator[Stand]:
    async with standing(tmp_path) as made:
        yield made


SCRIPTS = ("echo '$HOME' \"$((1+1))\" `echo x`", "--privileged", "echo a\necho b # \\")


async def test_a_command_runs_as_it_is_with_its_input_in_a_new_container_that_is_removed(
    stand: Stand,
) -> None:
    result = await stand.run("echo one; echo two >&2; exit 3")
    assert (result.error, result.text) == (None, "one\ntwo\n[exit status 3]")
    await until(lambda: not stand.left)
    assert [words[0] for words in stand.argvs] == ["create", "start", "rm"]
    name = stand.argvs[0][3]
    assert re.fullmatch("mcp-toolserver-[0-9a-f]{32}", name)
    assert stand.argvs[1:] == [["start", "--attach", name], ["rm", "--force", name]]
    for script in SCRIPTS:
        await stand.run(script)
    created = [words for words in stand.argvs if words[0] == "create"]
    assert [words[-1] for words in created[1:]] == [*SCRIPTS]
    assert len({words[3] for words in created}) == len(created)
    result = await stand.run("tr a-c x\nexit 3", stdin="a'b\n$c")
    assert (result.error, result.text) == (None, "x'x\n$x\n[exit status 3]")
    assert (await stand.run("cat", stdin="x" * 140_000)).error == "invalid_input"


async def test_it_is_shut_off_and_sees_the_first_root_only(stand: Stand, tmp_path: Path) -> None:
    await stand.run("true", timeout=1500)
    words = stand.argvs[0]
    options, rest = words[: words.index(IMAGE)], words[words.index(IMAGE) :]
    assert options[:2] == ["create", "--rm"]
    pairs = dict(zip(options[2::2], options[3::2], strict=True))
    assert pairs["--mount"] == f"type=bind,source={tmp_path}/root,target=/workspace"
    assert pairs["--workdir"] == "/workspace"
    assert (pairs["--network"], pairs["--pull"], pairs["--cap-drop"]) == ("none", "never", "ALL")
    assert pairs["--security-opt"] == "no-new-privileges"
    assert re.fullmatch(r"\d+:\d+", pairs["--user"])
    assert int(pairs["--pids-limit"]) == 512
    assert int(pairs["--memory"]) > 0
    assert (rest[1:3], rest[4:]) == (["sh", "-c"], ["sh", "2", "true"])


def engine(name: str, **more: Any) -> Engine:
    given = {"image": "i", "network": False, "processes": 5, "memory": 9, "user": "1:2", **more}
    return Engine(program=f"/bin/{name}", **given)


def test_each_engine_gets_its_own_arguments() -> None:
    podman, apple = engine("podman"), engine("container")
    assert "--user" not in podman.create("n", "/r", "s", 1)
    assert podman.remove("n")[1:] == ("rm", "--force", "n")
    assert apple.remove("n")[1:] == ("delete", "--force", "n")
    assert "--cap-drop" not in apple.create("n", "/r", "s", 1)
    assert (podman.pull, apple.pull) == ("podman pull i", "container image pull i")
    for one in (podman, apple, engine("docker")):
        assert "none" in one.create("n", "/r", "s", 1)
        networked = replace(one, network=True)
        assert "--network" not in networked.create("n", "/r", "s", 1)


def test_a_folder_with_any_name_is_mounted_and_nothing_else() -> None:
    words = engine("docker").create("n", '/r,readonly,source="/', "s", 1)
    assert words[words.index("--mount") + 1] == 'type=bind,"source=/r,readonly,source=""/",target=/workspace'


async def test_the_time_is_kept_in_the_container_too(tmp_path: Path) -> None:
    words = engine("docker").create("n", "/r", "sleep 100; echo late", 1)
    shell = words[words.index("i") + 1 :]
    with anyio.fail_after(10):
        done = await anyio.run_process(shell, check=False)
    # It kills itself with the rest.
    assert done.returncode == -9
    words = engine("docker").create("n", "/r", "echo here", 1)
    done = await anyio.run_process(words[words.index("i") + 1 :], check=False)
    assert done.stdout == b"here\n"


async def test_a_cancelled_call_and_a_timeout_remove_the_container(stand: Stand) -> None:
    daemons = Daemons()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stand.run, f"sleep {daemons.mark}")
        await until(lambda: len(daemons.alive()) == 1)
        tasks.cancel_scope.cancel()
    await until(lambda: not stand.left)
    assert daemons.alive() == []
    result = await stand.run("echo begun; sleep 100", timeout=400)
    assert re.fullmatch(r"begun\n\[killed after \d+\.\d s: timeout \(\d+ ms; .*\)\]", result.text)
    await until(lambda: not stand.left)


async def test_stopping_it_or_the_server_removes_the_container(tmp_path: Path) -> None:
    async with standing(tmp_path, foreground_seconds=0.5) as stand:
        result = await stand.run("echo begun; sleep 100")
        task = re.findall(r"bg_[0-9a-f]{6}", result.text)[0]
        assert len(stand.left) == 1
        assert (await call(stand.server, "TaskStop", task_id=task)).error is None
        await until(lambda: not stand.left)
        await stand.run("sleep 100")
        assert len(stand.left) == 1
    assert stand.left == set()


@pytest.mark.requirement("DA-55", "DA-57")
@pytest.mark.parametrize("mode", ["off", "containerOnly"])
async def test_without_a_container_nothing_runs(tmp_path: Path, mode: str) -> None:
    async with standing(tmp_path, containers=mode) as stand:
        (tmp_path / "bin/broken").touch()
        result = await stand.run("touch mark")
        assert result.error == "unavailable"
        assert "docker failed with exit status 125: Cannot connect to the daemon." in result.text
        assert f"docker pull {IMAGE}" in result.text
        if mode == "containerOnly":
            offered = names(stand.server) & {"bash", "REPL", "PowerShell", "container_shell"}
            assert offered == {"container_shell"}
            on_host = [
                await call(stand.server, "bash", command="touch mark"),
                await call(stand.server, "REPL", code="touch mark", language="shell"),
            ]
            assert [result.error for result in on_host] == ["unavailable"] * 2
            assert all("use container_shell" in result.text for result in on_host)
    assert not (tmp_path / "root/mark").exists()


@pytest.mark.requirement("DA-56")
async def test_failover_runs_on_the_host_and_says_so(tmp_path: Path) -> None:
    async with standing(tmp_path, containers="failover") as stand:
        inside = await stand.run("echo in")
        # A command cannot make itself run on the host.
        assert (await stand.run("echo x >>runs; exit 125")).text == "(no output)\n[exit status 125]"
        assert (tmp_path / "root/runs").read_text(encoding="utf-8") == "x\n"
        (tmp_path / "bin/broken").touch()
        outside = await stand.run("echo out; exit 3")
    assert inside.text == "in\n"
    assert outside.text.startswith("out\n[exit status 3]\n[Sandbox unavailable - ran in the local shell")
    assert "Cannot connect to the daemon." in outside.text


async def test_a_container_that_cannot_be_started_is_removed(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        for _ in range(32):
            await call(stand.server, "bash", command="sleep 100", run_in_background=True)
        result = await stand.run("true")
        assert result.error == "unavailable"
        assert "32 commands run already" in result.text
        await until(lambda: not stand.left)


async def test_without_an_engine_it_is_not_offered_and_says_what_is_missing(tmp_path: Path) -> None:
    async with workshop(tmp_path) as server:
        assert "container_shell" not in names(server)
        result = await call(server, "container_shell", command="true")
    assert result.error == "unavailable"
    assert "docker or podman or container" in result.text


async def test_below_full_access_it_is_neither_offered_nor_run(tmp_path: Path) -> None:
    async with standing(tmp_path, mode=Permission.WORKSPACE_WRITE) as stand:
        assert {"container_shell", "bash"} & names(stand.server) == {"bash"}
        result = await stand.run("true")
    assert result.error == "denied"
    assert "danger-full-access" in result.text
    assert stand.argvs == []


async def test_its_hints_say_what_it_reaches(tmp_path: Path) -> None:
    """With failover, it may run on the host."""
    reaching = {"network": {"network": "commands"}, "host": {"containers": "failover"}}
    for name, settings in {"nothing": {}, **reaching}.items():
        (tmp_path / name).mkdir()
        async with standing(tmp_path / name, **settings) as stand:
            listed = next(tool for tool in translate.tools(stand.server) if tool.name == "container_shell")
        assert listed.annotations is not None
        assert listed.annotations.open_world_hint is (name in reaching)
        assert listed.annotations.read_only_hint is False


POWERSHELL = 'printf "%s\\0" "$@" > argv\nexec bash -c "${@: -1}"'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Dispatcher]:
    pwsh = program(tmp_path / "bin", "pwsh", POWERSHELL)
    async with workshop(tmp_path, found=HostExecutables(powershell=pwsh)) as made:
        yield made


POWERSHELL_SCRIPTS = (
    "echo one",
    "echo '$HOME' \"$((1+1))\" `echo x`",
    "echo a; echo b & echo c | cat\n\n# end",
    "echo '\\' \\\\ ; echo $'\\x41'",
    "-Command; --version",
    "echo \u201cÄ\u201d \U0001f600",
    "-",
    " ",
)


@pytest.mark.requirement("CL-54")
async def test_the_script_arrives_as_it_is(server: Dispatcher, tmp_path: Path) -> None:
    for command in POWERSHELL_SCRIPTS:
        assert (await call(server, "PowerShell", command=command)).error is None
        argv = (tmp_path / "root/argv").read_text(encoding="utf-8").split("\0")[:-1]
        assert argv == ["-NoProfile", "-NonInteractive", "-Command", command]
    # An argument that no program takes is refused.
    result = await call(server, "PowerShell", command="echo " + "\u00e4" * 70_000)
    assert result.error == "invalid_input"
    assert "140005 bytes" in result.text
    longest = "#" * 99_999 + "\n"
    assert (await call(server, "PowerShell", command=longest)).error is None
    assert argument("x" * 131_071)


async def test_it_runs_in_the_folder_asked_for_and_in_the_background(
    server: Dispatcher, tmp_path: Path
) -> None:
    (tmp_path / "root/sub").mkdir()
    result = await call(server, "PowerShell", command="pwd -P; echo two >&2; exit 3", cwd="sub")
    assert (result.error, result.text) == (None, f"{tmp_path}/root/sub\ntwo\n[exit status 3]")
    assert (await call(server, "PowerShell", command="pwd", cwd="..")).error == "denied"
    result = await call(server, "PowerShell", command="echo begun; sleep 100", run_in_background=True)
    task = re.findall(r"bg_[0-9a-f]{6}", result.text)[0]
    output = await call(server, "TaskOutput", task_id=task, until="output", wait_ms=10_000)
    assert output.text.startswith("begun\n[running")
    assert (await call(server, "TaskStop", task_id=task)).error is None


async def test_in_a_sandbox_it_is_offered_and_confined() -> None:
    with visible_folder() as folder:
        pwsh = program(folder / "bin", "pwsh", 'exec bash -c "${@: -1}"')
        async with workshop(folder, Permission.READ_ONLY, found=HostExecutables(powershell=pwsh)) as server:
            assert "PowerShell" in names(server)
            result = await call(server, "PowerShell", command="echo ran; touch mark")
        assert result.text.startswith("ran\n")
        assert "read-only" in result.text
        assert not (folder / "root/mark").exists()


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_no_argument_ends_early(words: list[str]) -> None:
    assert shlex.split(script_for(["/bin/echo", *words]))[2:] == words


def test_the_first_program_on_path_that_no_root_holds_is_taken(tmp_path: Path) -> None:
    root, inside, outside = tmp_path / "root", tmp_path / "root/bin", tmp_path / "bin"
    mine = program(inside, "pwsh", "")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "pwsh").symlink_to(mine)
    (inside / "powershell").symlink_to("/bin/true")
    path = [str(inside), "bin", str(linked)]
    assert find_program(POWERSHELLS, path, [str(root)]) is None
    other = program(outside, "powershell", "")
    assert find_program(POWERSHELLS, [*path, str(outside)], [str(root)]) == other
    assert find_program(POWERSHELLS, path) == mine
    assert find_host_executables({"PATH": ":".join((*path, str(outside)))}, [str(root)]).powershell == other
