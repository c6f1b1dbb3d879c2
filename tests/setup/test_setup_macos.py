"""`setup` for a user of macOS, simulated on Linux by the name of the platform. Nothing here ran on a Mac."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_toolserver.commands.setup.clients import CLIENTS, command_of
from mcp_toolserver.commands.setup.macos import privacy_notes
from mcp_toolserver.commands.setup.places import Places, contains
from mcp_toolserver.commands.setup.program import server_command
from tests import ROOT
from tests.setup.client_setup import on_macos
from tests.support.workshop import program

FILES: Mapping[str, str] = {
    "claude-code": ".claude.json",
    "claude-desktop": "Library/Application Support/Claude/claude_desktop_config.json",
    "vscode": "Library/Application Support/Code/User/mcp.json",
    "vscode-insiders": "Library/Application Support/Code - Insiders/User/mcp.json",
    "cursor": ".cursor/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
    "cline-vscode": "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/"
    "cline_mcp_settings.json",
    "jetbrains": ".junie/mcp/mcp.json",
    "goose": ".config/goose/config.yaml",
}
"""Below the home folder; the sources are in the docstring of `commands/setup/places.py`."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder like that of a new user."""
    folder = tmp_path / "Users/ada"
    for name in ("Desktop", "Documents", "Downloads", "Library/Application Support", "Library/Caches"):
        (folder / name).mkdir(parents=True)
    return folder


def test_each_file_is_where_the_client_has_it_on_macos_whatever_a_terminal_sets(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_CONFIG_HOME is for opencode and goose, which read it on macOS too."""
    monkeypatch.setattr(sys, "platform", "darwin")
    plain = Places.of({"HOME": str(home)})
    found = {name: plain.file(client, "user").relative_to(home) for name, client in CLIENTS.items()}
    assert {name: str(file) for name, file in found.items()} == FILES
    assert {name: on_macos(client) for name, client in CLIENTS.items()} == {
        name: f"~/{file}" for name, file in FILES.items()
    }
    moved = Places.of({"HOME": str(home), "XDG_CONFIG_HOME": "/elsewhere"})
    assert {
        name for name, client in CLIENTS.items() if moved.file(client, "user").is_relative_to("/elsewhere")
    } == {"opencode", "goose"}


def run(platform: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`setup` in a process of its own on a platform of this name."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tests/support/stripped.py"), platform, "setup", *arguments],
        cwd=home,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def test_claude_desktop_gets_a_server_that_starts_without_a_path_and_remove_leaves_nothing(
    home: Path,
) -> None:
    work = home / "Documents/work"
    work.mkdir()
    done = run("darwin", "claude-desktop", "--root", str(work), "--yes", home=home)
    assert done.returncode == 0, done.stderr
    file = home / FILES["claude-desktop"]
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["toolserver"]
    # Applications that launchd starts have the PATH /usr/bin:/bin:/usr/sbin:/sbin.
    assert os.path.isabs(command_of(entry)[0])
    assert os.access(command_of(entry)[0], os.X_OK)
    assert f"whether Claude Desktop may use {work}." in done.stdout
    assert "Files and Folders → Claude Desktop" in done.stdout
    removed = run("darwin", "claude-desktop", "--remove", "--yes", home=home)
    assert removed.returncode == 0, removed.stderr
    # The server that setup started has a state folder, here that of Linux.
    left = [path for path in home.rglob("*") if path.is_file() and ".local/state" not in str(path)]
    assert left == []


# --- folders that macOS asks for -------------------------------------------------------------------------


ASKS = {
    "{home}/Documents/work": True,
    "{home}/Desktop": True,
    "{home}/link": True,
    "/Volumes/Stick/work": True,
    "{home}/work": False,
    "{home}/Documents-old": False,
    ".": False,
}
"""By root, whether macOS asks the user; `link` leads to Downloads, and `.` is the client's folder."""


def test_the_user_is_told_what_macos_asks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Documents/work", "Documents-old", "work"):
        (home / name).mkdir()
    (home / "link").symlink_to("Downloads")
    monkeypatch.chdir(home / "work")

    def told(root: str) -> bool:
        return bool(list(privacy_notes("Cursor", (root.format(home=home),), home)))

    assert not any(map(told, ASKS))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert {root: told(root) for root in ASKS} == ASKS


@pytest.mark.skipif(sys.platform != "linux", reason="unshare is a program of Linux")
def test_a_folder_is_known_by_what_it_is_and_not_by_its_name(home: Path, tmp_path: Path) -> None:
    """On most volumes of macOS, `/users/ADA` is `/Users/ada`. Here a mount gives a folder a second name."""
    (tmp_path / "USERS").mkdir()
    (home / "work").mkdir()
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    setup = [sys.executable, "-m", "mcp_toolserver", "setup", "cursor", "--print", "--root"]
    script = f'mount --bind "{home.parent}" "{tmp_path}/USERS" && exec "$@"'
    for root in ("USERS/ada", "USERS"):
        done = subprocess.run(
            ["unshare", *as_root, "--mount", "sh", "-c", script, "sh", *setup, str(tmp_path / root)],
            env={"HOME": str(home), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "contains your home folder" in done.stderr
    assert contains(str(home), str(home / "work"))
    assert not contains(str(home / "work"), str(home))
    assert not contains(str(home / "missing"), str(home / "missing/x"))


# --- the program -----------------------------------------------------------------------------------------


def test_homebrew_is_configured_by_its_link_which_an_upgrade_leaves_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keg = tmp_path / "opt/homebrew/Cellar/mcp-toolserver/0.1.0/libexec"
    script = program(keg / "bin", "mcp-toolserver", "")
    link = tmp_path / "opt/homebrew/bin/mcp-toolserver"
    link.parent.mkdir(parents=True)
    link.symlink_to(script)
    monkeypatch.setattr(sys, "prefix", str(keg))
    monkeypatch.setattr(sys, "executable", str(keg / "bin/python"))
    assert server_command({}, str(link)) == (str(link),)


def test_a_permanent_environment_of_pipx_on_macos_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/Users/ada/Library/Application Support/pipx/venvs/mcp-toolserver")
    assert os.path.isabs(server_command({}, "mcp-toolserver")[0])
    assert "run" not in server_command({}, "mcp-toolserver")
