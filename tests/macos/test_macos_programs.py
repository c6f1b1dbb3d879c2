"""Where programs are looked for on macOS."""

import sys
from pathlib import Path

import pytest

from mcp_toolserver.runtime.lsp.pool import find_executables
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH, command_environment
from mcp_toolserver.runtime.which import HOMEBREW, find_program, is_executable, program_folders
from tests.support.workshop import program

OF_LAUNCHD = "/usr/bin:/bin:/usr/sbin:/sbin"


@pytest.fixture
def _macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.mark.usefixtures("_macos")
def test_homebrew_comes_last_and_once(tmp_path: Path) -> None:
    found = program_folders(OF_LAUNCHD, [str(tmp_path / "missing")])
    assert found == (*OF_LAUNCHD.split(":"), *HOMEBREW)
    first = f"{HOMEBREW[0]}:/usr/bin"
    assert program_folders(first, []) == (HOMEBREW[0], "/usr/bin", HOMEBREW[1])


@pytest.mark.usefixtures("_macos")
def test_the_developer_tools_come_before_their_shims(tmp_path: Path) -> None:
    tools = tmp_path / "Xcode/usr/bin"
    tools.mkdir(parents=True)
    link = tmp_path / "xcode_select_link"
    link.symlink_to(tmp_path / "Xcode")
    for path in (OF_LAUNCHD, "/opt/homebrew/bin:/usr/local/bin"):
        found = program_folders(path, [str(tmp_path / "missing"), str(link), str(tmp_path / "other")])
        assert set(found) == {*path.split(":"), str(tools), *HOMEBREW}
        assert "/usr/bin" not in found or found.index(str(tools)) < found.index("/usr/bin")


@pytest.mark.usefixtures("_macos")
def test_a_shim_is_no_program(tmp_path: Path) -> None:
    assert is_executable("/usr/bin/git")
    assert find_program(["git"], ["/usr/bin"]) is None
    assert find_executables("git", ["/usr/bin"], ()) == []
    real = program(tmp_path, "git", "")
    assert find_program(["git"], ["/usr/bin", str(tmp_path)]) == real
    assert find_program(["env"], ["/usr/bin"]) == "/usr/bin/env"


@pytest.mark.usefixtures("_macos")
def test_commands_find_what_homebrew_installs() -> None:
    paths = {
        OF_LAUNCHD: ":".join((OF_LAUNCHD, *HOMEBREW)),
        "/opt/homebrew/bin:/bin": "/opt/homebrew/bin:/bin:/usr/local/bin",
    }
    assert {path: command_environment({"PATH": path})["PATH"] for path in paths} == paths
    assert set(command_environment({})["PATH"].split(":")) == {*DEFAULT_PATH.split(":"), *HOMEBREW}
