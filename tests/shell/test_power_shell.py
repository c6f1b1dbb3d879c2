"""PowerShell, with a program of that name that writes down its arguments and has bash run the last one."""

import re
import shlex
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.executables import HostExecutables, find_host_executables
from mcp_toolserver.runtime.which import POWERSHELLS, find_program
from mcp_toolserver.text.shell.words import argument
from mcp_toolserver.text.shell.words import program as script_for
from tests.support.confinement import visible_folder
from tests.support.processes import call
from tests.support.workshop import names, program, workshop

STAND_IN = 'printf "%s\\0" "$@" > argv\nexec bash -c "${@: -1}"'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Dispatcher]:
    pwsh = program(tmp_path / "bin", "pwsh", STAND_IN)
    async with workshop(tmp_path, found=HostExecutables(powershell=pwsh)) as made:
        yield made


SCRIPTS = (
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
    for command in SCRIPTS:
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


async def test_without_the_program_it_is_not_offered_and_says_what_is_missing(tmp_path: Path) -> None:
    async with workshop(tmp_path) as server:
        assert "PowerShell" not in names(server)
        result = await call(server, "PowerShell", command="echo hi")
    assert result.error == "unavailable"
    assert "pwsh or powershell" in result.text
    assert "PATH" in result.text


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
