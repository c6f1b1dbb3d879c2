"""The server in WSL: roots that Windows names, and `setup --windows`.

Windows itself cannot run here. A mount namespace has the drive `C:` where WSL mounts it, with a `cmd.exe` of
the test; everything else is real.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from pydantic import FileUrl

from mcp_toolserver.commands.setup.clients import CLIENTS
from mcp_toolserver.runtime.windows_paths import WindowsPaths, drives_in
from tests.support.live import Setup, text
from tests.support.process_layer import ran

CMD = """#!/usr/bin/python3
import sys
assert sys.argv[1:] == ["/d", "/u", "/c", "echo %USERPROFILE%&echo %APPDATA%"], sys.argv
profile = "C:\\\\Users\\\\Zoë"
sys.stdout.buffer.write(f"{profile}\\r\\n{profile}\\\\AppData\\\\Roaming\\r\\n".encode("utf-16-le"))
"""
ON_WINDOWS = [client.name for client in CLIENTS.values() if client.on_windows]


def in_wsl(drive: Path, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace in which `drive` is mounted as the drive `C:`."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    steps = 'mount -t tmpfs none /mnt && mkdir /mnt/c && mount --bind "$0" /mnt/c && exec "$@"'
    return ["unshare", *user, "--mount", "sh", "-c", steps, str(drive), *command]


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """The drive, with the program that names the folders of its user."""
    cmd = tmp_path / "drive/Windows/System32/cmd.exe"
    cmd.parent.mkdir(parents=True)
    cmd.write_text(CMD, encoding="utf-8")
    cmd.chmod(0o755)
    (tmp_path / "drive/project").mkdir()
    (tmp_path / "drive/project/f").write_text("on the drive", encoding="utf-8")
    return tmp_path / "drive"


OUTSIDE = "no folder that the client works in lies inside the roots"
ROOTS = [
    ("file:///c%3A/project", "f", "1\ton the drive"),
    ("file:///C:/project", "/mnt/c/project/f", "1\ton the drive"),
    ("file://wsl.localhost/Ubuntu/mnt/c/project", "f", "1\ton the drive"),
    ("file:///C:/elsewhere", "f", OUTSIDE),
    ("file:///D:/project", "f", OUTSIDE),
    ("file://wsl.localhost/Debian/mnt/c/project", "f", OUTSIDE),
]
"""What a client of Windows names as its root, a path in a call, and what the answer holds."""


async def test_the_roots_of_a_client_of_windows_are_folders_of_its_drives(
    drive: Path, tmp_path: Path
) -> None:
    opened: list[str] = []

    async def roots(context: Any) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(opened[-1]))])

    setup = Setup(root=drive, home=tmp_path)
    command = in_wsl(drive, [sys.executable, "-m", "mcp_toolserver", "--root", "/mnt/c"])
    started = StdioServerParameters(
        command=command[0],
        args=command[1:],
        env={**setup.environment, "WSL_DISTRO_NAME": "Ubuntu"},
        cwd=os.getcwd(),
    )
    answers: list[str] = []
    async with Client(started, mode="legacy", list_roots_callback=roots, read_timeout_seconds=30) as client:
        for uri, path, _ in ROOTS:
            opened.append(uri)
            await client.session.send_roots_list_changed()
            answers.append(text(await client.call_tool("read_file", {"path": path})))
    assert [expected in answer for (_, _, expected), answer in zip(ROOTS, answers, strict=True)] == [True] * 6


def configure(*arguments: str, drive: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `setup` in WSL, with the home folder of Linux next to the drive."""
    home = drive.parent / "home"
    (home / "project").mkdir(parents=True, exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "WSL_DISTRO_NAME": "Ubuntu", **more}
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE")}
    command = in_wsl(drive, [sys.executable, "-m", "mcp_toolserver", "setup", *arguments])
    return ran(command, env={**environment, **coverage})


@pytest.mark.long
def test_a_client_of_windows_starts_the_server_with_wsl_exe(drive: Path) -> None:
    project, profile = drive.parent / "home/project", drive / "Users/Zoë"
    done = configure("claude-desktop", "--windows", "--root", str(project), "--yes", drive=drive)
    assert done.returncode == 0, done.stderr
    assert "tools in mode read-only" in done.stdout
    file = profile / "AppData/Roaming/Claude/claude_desktop_config.json"
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["toolserver"]
    program = str(Path(sys.executable).with_name("mcp-toolserver"))
    assert entry["command"] == "wsl.exe"
    assert entry["args"] == [
        *("--distribution", "Ubuntu", "--exec", program),
        *("--permission-mode", "read-only", "--root", str(project)),
    ]
    listed = configure("--list", "--windows", drive=drive).stdout
    assert f"read-only  {project}" in listed
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ON_WINDOWS
    removed = configure("claude-desktop", "--windows", "--remove", "--yes", drive=drive)
    assert removed.returncode == 0, removed.stderr
    assert not [path for path in profile.rglob("*") if path.is_file()]


@pytest.mark.long
def test_the_file_of_a_client_of_windows_is_in_the_folder_of_its_user(drive: Path) -> None:
    for name in ON_WINDOWS:
        done = configure(name, "--windows", "--root", "/mnt/c/project", "--print", drive=drive)
        assert done.returncode == 0, done.stderr
        place = CLIENTS[name].user.replace("{application}", "~/AppData/Roaming").removeprefix("~/")
        assert f"+++ /mnt/c/Users/Zoë/{place}\n" in done.stdout
        assert "wsl.exe" in done.stdout


WRONG = (
    ("name the folder", "vscode"),
    ("no configuration per project", "vscode", "--root", "/mnt/c", "--scope", "project"),
    ("does not configure Codex CLI on Windows", "codex", "--root", "/mnt/c"),
    ("contains your home folder", "claude-desktop", "--root", "/mnt/c/Users"),
)
"""Of requests, what the refusal says, and the arguments."""


def refusal(*arguments: str, drive: Path, **more: str) -> str:
    done = configure(*arguments, "--windows", "--yes", drive=drive, **more)
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.long
def test_a_wrong_request_changes_nothing(drive: Path) -> None:
    assert "this is not WSL" in refusal("cursor", "--root", "/", drive=drive, WSL_DISTRO_NAME="")
    (drive / "Users/Zoë").mkdir(parents=True)
    for message, *arguments in WRONG:
        assert message in refusal(*arguments, drive=drive)
    assert not list((drive / "Users/Zoë").iterdir())


@pytest.mark.long
def test_a_windows_that_does_not_answer_is_an_error(drive: Path) -> None:
    cursor, cmd = ("cursor", "--root", "/mnt/c/project"), drive / "Windows/System32/cmd.exe"
    cmd.write_text("#!/bin/sh\nexit 1", encoding="utf-8")
    assert "Windows did not name the folders" in refusal(*cursor, drive=drive)
    cmd.write_text("#!/bin/sh\nprintf 'E\\0:\\0'", encoding="utf-8")
    assert "not on a mounted drive" in refusal(*cursor, drive=drive)
    cmd.unlink()
    assert "cmd.exe is not on the PATH" in refusal(*cursor, drive=drive)


MOUNTS = r"""/dev/sdc / ext4 rw,relatime 0 0
C:\134 /mnt/c 9p rw,noatime,aname=drvfs;path=C:\;uid=1000;symlinkroot=/mnt/,cache=5,trans=fd,rfd=4,wfd=4 0 0
drvfs /windows\040drives/d virtiofs rw,noatime 0 0
none /mnt/wsl tmpfs rw 0 0
none /mnt/C tmpfs rw 0 0
"""
PATHS = WindowsPaths(distribution="Ubuntu", drives={"c": "/mnt/c", "d": "/windows drives/d"})


def test_drives_are_the_mounts_on_folders_named_by_a_letter() -> None:
    assert drives_in(MOUNTS) == PATHS.drives


LOCAL = {
    r"C:\Users\me": "/mnt/c/Users/me",
    "/c:/Users/me": "/mnt/c/Users/me",
    "D:/a b": "/windows drives/d/a b",
    "C:": "/mnt/c",
    "//wsl.localhost/Ubuntu/home/me": "/home/me",
    r"\\wsl$\ubuntu\home\me": "/home/me",
    "//wsl.localhost/Ubuntu": "/",
    "E:/x": None,
    "C:x": None,
    "CC:/x": None,
    "/home/me": None,
    "//wsl.localhost/Debian/home/me": None,
    "//wsl.localhost.example.org/Ubuntu/home/me": None,
    "//server/C:/x": None,
}


def test_a_path_of_windows_becomes_one_of_this_distribution() -> None:
    assert {path: PATHS.local(path) for path in LOCAL} == LOCAL
