"""`setup` for a user of macOS, simulated on Linux by the name of the platform. Nothing here ran on a Mac."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_toolserver.commands.setup.clients import command_of
from mcp_toolserver.commands.setup.places import contains, privacy_notes
from tests import ROOT
from tests.support.process_layer import ran


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder like that of a new user."""
    folder = tmp_path / "Users/ada"
    for name in ("Desktop", "Documents", "Downloads", "Library/Application Support", "Library/Caches"):
        (folder / name).mkdir(parents=True)
    return folder


DARWIN = (sys.executable, str(ROOT / "tests/support/stripped.py"), "darwin")
"""What runs the program on a platform of this name."""


def run(*command: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "PYTHONPATH": str(ROOT)}
    return ran(command, cwd=home, env=environ)


@pytest.mark.long
def test_claude_desktop_gets_a_server_that_starts_without_a_path(home: Path) -> None:
    work = home / "Documents/work"
    work.mkdir()
    done = run(*DARWIN, "setup", "claude-desktop", "--root", str(work), "--yes", home=home)
    assert done.returncode == 0, done.stderr
    file = home / "Library/Application Support/Claude/claude_desktop_config.json"
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["toolserver"]
    # Applications that launchd starts have the PATH /usr/bin:/bin:/usr/sbin:/sbin.
    assert os.path.isabs(command_of(entry)[0])
    assert os.access(command_of(entry)[0], os.X_OK)
    assert f"whether Claude Desktop may use {work}." in done.stdout
    assert "Files and Folders → Claude Desktop" in done.stdout


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
    unshare = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--mount")
    setup = (sys.executable, "-m", "mcp_toolserver", "setup", "cursor", "--print", "--root")
    script = f'mount --bind "{home.parent}" "{tmp_path}/USERS" && exec "$@"'
    done = run(*unshare, "sh", "-c", script, "sh", *setup, str(tmp_path / "USERS"), home=home)
    assert done.returncode == 2, done.stderr
    assert "contains your home folder" in done.stderr
    assert contains(str(home), str(home / "work"))
    assert not contains(str(home / "work"), str(home))
    assert not contains(str(home / "missing"), str(home / "missing/x"))
