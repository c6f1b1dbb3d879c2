"""What is said of a command that was kept from something; the sandbox itself is tested elsewhere."""

from dataclasses import replace

import pytest

from mcp_toolserver.text.shell.sandbox_hints import Confined, explain

READING = Confined(writes=False, git=False, network=False)
WRITING = Confined(writes=True, git=False, network=False)
WITH_TOOLS = replace(WRITING, git_tools=("git_branch", "git_commit"))
COMMITTING = Confined(writes=True, git=True, network=True)


@pytest.mark.parametrize(
    ("output", "confined", "says"),
    [
        pytest.param(
            "bash: f: Read-only file system", READING, "--permission-mode workspace-write", id="read"
        ),
        pytest.param("Error: EROFS, open 'x'", READING, "--permission-mode workspace-write", id="node"),
        pytest.param(
            "fatal: Unable to create '/w/.git/index.lock': Read-only file system",
            WRITING,
            "--git writable",
            id="git",
        ),
        pytest.param(
            "fatal: Unable to create '/w/.git/index.lock': Read-only file system",
            WITH_TOOLS,
            "Use these tools: git_branch, git_commit.",
            id="git-tools",
        ),
        pytest.param(
            "error: could not lock config file .git/config: Read-only file system",
            WRITING,
            "--git writable",
            id="git-relative",
        ),
        pytest.param("touch: '/usr/x': Read-only file system", WRITING, "roots", id="outside"),
        pytest.param("touch: '/w/.gitmodules': Read-only file system", WRITING, "act upon", id="not-git"),
        pytest.param("touch: '/w/.git/hooks/x': Read-only file system", COMMITTING, "act upon", id="hooks"),
        pytest.param("curl: (6) Could not resolve host: a", WRITING, "--network commands", id="network"),
        pytest.param("bash: kill: (7) - Operation not permitted", COMMITTING, "it started", id="kill"),
        pytest.param(
            "pkill: killing pid 7 failed: Operation not permitted", COMMITTING, "it started", id="pkill"
        ),
    ],
)
def test_a_denial_names_what_lifts_it_or_how_far_it_goes(output: str, confined: Confined, says: str) -> None:
    (note,) = explain(output, 0, confined)
    assert says in note


@pytest.mark.parametrize("output", ["", "No such file or directory", "read-only", "the network"])
def test_other_failures_are_left_to_speak_for_themselves(output: str) -> None:
    assert explain(output, 1, READING) == ()


def test_where_there_is_a_network_its_failures_are_its_own() -> None:
    assert explain("Could not resolve host: a", 6, COMMITTING) == ()


def test_where_nothing_confines_commands_nothing_is_said_of_a_sandbox() -> None:
    assert explain("touch: '/x': Read-only file system\nCould not resolve host: a", 1, None) == ()


@pytest.mark.parametrize(
    "output",
    [
        "bash: line 1: cargo: command not found",
        "bash: cargo: command not found",
        "sh: 1: cargo: not found",
        "/bin/sh: 3: cargo: not found",
        "cargo: not found",
        "one\nbash: line 7: cargo: command not found\nthree",
        "/usr/bin/env: ‘cargo’: No such file or directory",
        "env: 'cargo': No such file or directory",
    ],
)
def test_a_missing_program_is_named(output: str) -> None:
    (note,) = explain(output, 0, WRITING)
    assert note.startswith("cargo is not on the PATH of commands here")


@pytest.mark.parametrize(
    "output", ["the file was not found", "a b: not found", "x: not found (yet)", "error: a: key not found!"]
)
def test_what_no_shell_says_is_no_missing_program(output: str) -> None:
    assert explain(output, 0, WRITING) == ()


@pytest.mark.parametrize(
    ("output", "status"), [("", 137), ("bash: line 1:    12 Killed                  python3 x.py", 0)]
)
def test_a_killed_process_is_said(output: str, status: int) -> None:
    (note,) = explain(output, status, None)
    assert "SIGKILL" in note
