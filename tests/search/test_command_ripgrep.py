"""`rg` is a program of commands: that of the machine, else the one that the server searches with."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.search.executable import COMMAND_PATH, command_variables, find_ripgrep
from tests.support.confinement import FULL, READ_ONLY, USERS, Scene, put, scene, serving
from tests.support.processes import call
from tests.support.workshop import program, workshop

OWN = f"{COMMAND_PATH}/rg"


@pytest.fixture(scope="module")
def of() -> Generator[Scene]:
    """With all programs of the machine but its ripgrep, if it has one, in `outside/bin`."""
    with scene(USERS[0]) as made:
        programs = made.outside / "bin"
        programs.mkdir()
        for file in Path("/usr/bin").iterdir():
            if file.name != "rg":
                (programs / file.name).symlink_to(file)
        yield made


@pytest.mark.long
@pytest.mark.parametrize("mode", [READ_ONLY, FULL])
def test_commands_search_with_the_ripgrep_of_the_server(of: Scene, mode: str) -> None:
    with serving(of, mode, around=("env", f"PATH={of.outside}/bin")) as server:
        assert server.bash("command -v rg; rg -c hello f; rg missing f; echo $?") == f"{OWN}\n1\n1\n"
        shown = server.call("REPL", language="shell", code="rg -c hello f", session="new").text
        assert shown.startswith("1\n")
        # It is the last of the PATH, and nothing else comes with it.
        assert server.bash("echo ${PATH##*:}; ls ${PATH##*:}") == f"{COMMAND_PATH}\nrg\n"
        if mode != FULL:
            assert server.bash(f"test -w {OWN} || echo kept") == "kept\n"


async def test_commands_have_it_in_bubblewrap_and_behind_landlock_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for bubblewrap in (True, False):
        async with workshop(tmp_path, Permission.READ_ONLY, bubblewrap=bubblewrap) as server:
            put(tmp_path / "root/f", "hello\n")
            said = await call(server, "bash", command="rg -c hello f; echo ${PATH##*:}")
            assert said.text == f"1\n{COMMAND_PATH}\n"


def test_a_program_in_the_workspace_is_never_the_one_of_the_server(of: Scene) -> None:
    for name in ("rg", "git"):
        program(of.root, name, f"touch {of.outside}/evil-ran; echo evil")
    with serving(of, FULL, around=("env", f"PATH={of.root}:{os.environ['PATH']}")) as server:
        found = server.call("grep_search", pattern="hello", path="f")
        assert (found.is_error, "f" in found.text) == (False, True)
        assert "second" in server.call("git_log").text
        # Setting the variable changes only what the command itself runs.
        server.bash(f"export COMMAND_RIPGREP={of.root}/rg; true")
        assert not server.call("grep_search", pattern="hello", path="f").is_error
        assert not (of.outside / "evil-ran").exists()
        server.bash("rg hello f")
    assert (of.outside / "evil-ran").exists(), "the attack is not one"


def test_ripgrep_on_the_path_counts_outside_the_roots_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.runtime.search.executable._wheel_folders", lambda: iter(()))
    theirs = program(tmp_path / "bin", "rg", "")
    assert find_ripgrep([str(tmp_path / "bin")]) == theirs
    monkeypatch.chdir(tmp_path / "bin")
    assert find_ripgrep([".", ""]) is None
    assert find_ripgrep([str(tmp_path / "bin")], [str(tmp_path)]) is None


def test_without_ripgrep_the_path_of_commands_stays_as_it_is() -> None:
    assert command_variables("/bin", None) == {}
    assert command_variables("/bin", "/x/rg") == {"PATH": f"/bin:{COMMAND_PATH}", "COMMAND_RIPGREP": "/x/rg"}


async def test_the_ripgrep_of_the_machine_comes_first_and_one_that_would_start_itself_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "rg", "echo theirs")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    async with workshop(tmp_path) as server:
        assert (await call(server, "bash", command="rg hello f")).text == "theirs\n"
        for spelt in ("", f"COMMAND_RIPGREP={OWN}"):
            result = await call(server, "bash", command=f"env -u COMMAND_RIPGREP {spelt} {OWN} x; exit $?")
            assert "this runs only in commands of mcp-toolserver" in result.text
            assert "[exit status 2]" in result.text or "[exit status 127]" in result.text
