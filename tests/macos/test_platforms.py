"""Where less is there than on Linux: what is served still holds, and what cannot be held is not served."""

import json
import os
import subprocess
import sys
from pathlib import Path

from mcp_toolserver.pipeline.registry import discover
from tests import ROOT
from tests.support.processes import FULL, PATIENCE

WITHOUT_PROGRAMS = {
    *("fs_read", "fs_write", "fetch", "send", "catalogue"),
    *("ask", "tell", "todos", "preferences", "clock", "plan"),
    *("jobs", "tasks", "task_runs", "cron", "schedules", "skills", "skills_save"),
}
"""The capabilities that start no program themselves."""


def server(platform: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The server as it is on `platform`."""
    # Many of these start, and none runs a line of ours that others do not.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return subprocess.run(
        [sys.executable, str(ROOT / "tests/support/stripped.py"), platform, *arguments],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        check=False,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=6 * PATIENCE,
    )


def options(folder: Path, mode: str = "workspace-write") -> list[str]:
    (folder / "root").mkdir(exist_ok=True)
    places = ["--root", str(folder / "root"), "--state-dir", str(folder / "state"), "--permission-mode", mode]
    # Nothing confines this process as macOS would.
    return [*places, "--allow-unconfined-server"]


def offered(platform: str, mode: str, folder: Path) -> set[str]:
    everything = ["tools", "--format", "json", "--toolsets", "all"]
    done = server(platform, *everything, *options(folder, mode), folder=folder)
    assert done.returncode == 0, done.stderr
    return {tool["name"] for tool in json.loads(done.stdout)}


def test_where_no_program_can_be_held_nothing_is_offered_that_runs_one(tmp_path: Path) -> None:
    without = {
        entry.spec.name
        for entry in discover()
        if {need.name.lower() for need in entry.spec.needs} <= WITHOUT_PROGRAMS
    }
    assert "read_file" in without
    # The first cannot pass descriptors, the second has no sandbox-exec.
    assert offered("bare", FULL, tmp_path) == without
    found = offered("darwin", "workspace-write", tmp_path)
    assert "read_file" in found
    assert found <= without


def test_a_mac_runs_programs_without_a_sandbox_where_the_mode_asks_for_none(tmp_path: Path) -> None:
    programs = {"bash", "REPL", "grep_search", "git_status", "git_commit", "repo_clone", "EnterWorktree"}
    assert offered("darwin", FULL, tmp_path) >= programs
    settings = options(tmp_path, FULL)
    done = server("darwin", "call", "bash", '{"command": "echo $((6 * 7))"}', *settings, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "42" in done.stdout


def test_a_server_that_cannot_confine_itself_does_not_start(tmp_path: Path) -> None:
    asked, placed = ["call", "read_file", '{"path": "a"}'], options(tmp_path)
    refused = (
        ("darwin", [*asked, *placed[:-1]], "sandbox_init"),
        ("darwin", [*asked, "--sandbox", "required", *placed], "commands cannot be confined here"),
        # Paths cannot be kept in a root.
        ("win32", [*asked, *placed], "WSL 2"),
        ("win32", ["serve", *placed], "WSL 2"),
    )
    for platform, arguments, words in refused:
        done = server(platform, *arguments, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), platform
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_file_tools_work_and_stay_in_the_root(tmp_path: Path) -> None:
    settings = options(tmp_path)
    (tmp_path / "secret").write_text("secret\n", encoding="utf-8")
    (tmp_path / "root" / "link").symlink_to("../secret")

    def call(name: str, **arguments: object) -> tuple[int, str]:
        done = server("darwin", "call", name, json.dumps(arguments), *settings, folder=tmp_path)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout

    assert call("write_file", path="a/b.txt", content="one\n")[0] == 0
    status, text = call("read_file", path="a/b.txt")
    assert (status, "one" in text) == (0, True)
    for path in ("link", "../secret"):
        status, text = call("read_file", path=path)
        assert (status, "secret\n" in text) == (1, False)
    assert (tmp_path / "root/a/b.txt").read_text(encoding="utf-8") == "one\n"
