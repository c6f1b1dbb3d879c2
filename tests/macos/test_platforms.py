"""Where less is there than on Linux: what is served still holds, and what cannot be held is not served."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.client import Client, Launch
from mcp_toolserver.pipeline.registry import discover
from tests import ROOT
from tests.support.processes import FULL, PATIENCE

WITHOUT_PROGRAMS = {
    *("fs_read", "fs_write", "fetch", "send", "catalogue"),
    *("ask", "tell", "todos", "preferences", "clock", "plan"),
    *("jobs", "tasks", "task_runs", "cron", "schedules", "skills", "skills_save"),
}
"""The capabilities that start no program themselves."""

STRIPPED = (sys.executable, str(ROOT / "tests/support/stripped.py"))


def environment(folder: Path) -> dict[str, str]:
    # Many of these start, and none runs a line of ours that others do not.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return {**environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def server(platform: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STRIPPED, platform, *arguments],
        cwd=folder,
        env=environment(folder),
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


@contextmanager
def on_mac(*flags: str, folder: Path) -> Generator[Client]:
    """A client of the server as it is on macOS."""
    command = [*STRIPPED, "darwin", "serve", "--toolsets", "all", *flags]
    with Client(Launch(command=command, cwd=ROOT, environment=environment(folder))) as client:
        yield client


def called(client: Client, name: str, **arguments: object) -> tuple[bool, str]:
    result = client.request("tools/call", {"name": name, "arguments": arguments}).result
    return bool(result.get("isError")), "".join(part["text"] for part in result["content"])


def names(client: Client) -> set[str]:
    return {tool["name"] for tool in client.request("tools/list", {}).result["tools"]}


def test_where_no_program_can_be_held_nothing_is_offered_that_runs_one(tmp_path: Path) -> None:
    without = {
        entry.spec.name
        for entry in discover()
        if {need.name.lower() for need in entry.spec.needs} <= WITHOUT_PROGRAMS
    }
    # It cannot pass descriptors.
    everything = ["tools", "--format", "json", "--toolsets", "all", *options(tmp_path, FULL)]
    done = server("bare", *everything, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {tool["name"] for tool in json.loads(done.stdout)} == without


def test_a_mac_runs_programs_without_a_sandbox_where_the_mode_asks_for_none(tmp_path: Path) -> None:
    programs = {"bash", "REPL", "grep_search", "git_status", "git_commit", "repo_clone", "EnterWorktree"}
    with on_mac(*options(tmp_path, FULL), folder=tmp_path) as client:
        assert names(client) >= programs
        assert called(client, "bash", command="echo $((6 * 7))") == (False, "42\n")


def test_a_server_that_cannot_confine_itself_does_not_start(tmp_path: Path) -> None:
    asked, placed = ["call", "read_file", '{"path": "a"}'], options(tmp_path)
    refused = (
        ("darwin", [*asked, *placed[:-1]], "sandbox_init"),
        # Paths cannot be kept in a root.
        ("win32", ["serve", *placed], "WSL 2"),
    )
    for platform, arguments, words in refused:
        done = server(platform, *arguments, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), platform
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_without_a_sandbox_a_mac_offers_file_tools_which_stay_in_the_root(tmp_path: Path) -> None:
    settings = options(tmp_path)
    (tmp_path / "secret").write_text("secret\n", encoding="utf-8")
    (tmp_path / "root" / "link").symlink_to("../secret")
    with on_mac(*settings, folder=tmp_path) as client:
        assert not {"bash", "REPL", "grep_search", "git_status"} & names(client)
        assert not called(client, "write_file", path="a/b.txt", content="one\n")[0]
        assert "one" in called(client, "read_file", path="a/b.txt")[1]
        for path in ("link", "../secret"):
            is_error, text = called(client, "read_file", path=path)
            assert (is_error, "secret\n" in text) == (True, False)
    assert (tmp_path / "root/a/b.txt").read_text(encoding="utf-8") == "one\n"
