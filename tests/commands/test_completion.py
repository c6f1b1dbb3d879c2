"""The scripts of `completion`, in the shells that they are for."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.process_layer import ran

CASES = {
    "--permission-mode": "mcp-toolserver --permission-m",
    "doctor": "mcp-toolserver doc",
    "workspace-write": "mcp-toolserver --permission-mode w",
    "danger-full-access": "mcp-toolserver tools --permission-mode d",
    "opencode": "mcp-toolserver setup openc",
    "desktop": "mcp-toolserver --toolsets des",
    "glob_search": "mcp-toolserver call glo",
}
"""A unique completion, and what is typed before it."""


def script(shell: str, folder: Path) -> Path:
    """The file with the script for a shell."""
    with (folder / shell).open("wb") as file:
        command = [sys.executable, "-m", "mcp_toolserver", "completion", shell]
        subprocess.run(command, env={**os.environ, "HOME": str(folder)}, stdout=file, check=True)
    return folder / shell


def program(shell: str) -> str:
    """The path of a shell; the test is skipped where there is none."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def completed(shell: list[str], setup: str, home: Path) -> None:
    """Type each line of `CASES` and Tab into an interactive shell, and wait for the completion."""
    ours, theirs = pty.openpty()
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=environ, start_new_session=True
    )
    os.close(theirs)
    try:
        # The quotes keep the echo of this line from being taken for its output.
        os.write(ours, f"{setup}; echo rea''dy\n".encode())
        wait_for(ours, "ready")
        for answer, line in CASES.items():
            os.write(ours, f"{line}\t".encode())
            wait_for(ours, f" {answer} ")
            # Ctrl-U empties the line.
            os.write(ours, b"\x15")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def wait_for(terminal: int, text: str) -> None:
    shown, deadline = b"", time.monotonic() + 60
    while text.encode() not in shown:
        ready = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]
        assert ready, f"{text!r} is not in {shown.decode()!r}"
        shown += os.read(terminal, 1 << 16)


def test_bash_completes_commands_flags_and_values(tmp_path: Path) -> None:
    completed([program("bash"), "--norc", "-i"], f"source {script('bash', tmp_path)}", tmp_path)


def test_zsh_completes_commands_flags_and_values(tmp_path: Path) -> None:
    shell = program("zsh")
    script("zsh", tmp_path).rename(tmp_path / "_mcp-toolserver")
    completed(
        [shell, "-f", "-i"], f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D", tmp_path
    )


def test_fish_completes_commands_flags_and_values(tmp_path: Path) -> None:
    shell = program("fish")
    command = "; ".join(
        (f"source {script('fish', tmp_path)}", *(f"complete -C '{line}'" for line in CASES.values()))
    )
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    found = ran([shell, "--no-config", "-c", command], env=environ)
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == list(CASES)
