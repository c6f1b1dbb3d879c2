"""What is said of a command that was kept from something; the sandbox itself is tested elsewhere."""

from dataclasses import replace

from mcp_toolserver.text.shell.command_output import Confined, explain

READING = Confined(writes=False, git=False, network=False)
WRITING = Confined(writes=True, git=False, network=False)
WITH_TOOLS = replace(WRITING, git_tools=("git_branch", "git_commit"))
COMMITTING = Confined(writes=True, git=True, network=True)


LOCKED = "fatal: Unable to create '/w/.git/index.lock': Read-only file system"

DENIALS = [
    ("bash: f: Read-only file system", READING, "--permission-mode workspace-write"),
    ("Error: EROFS, open 'x'", READING, "--permission-mode workspace-write"),
    (LOCKED, WRITING, "--git writable"),
    (LOCKED, WITH_TOOLS, "Use these tools: git_branch, git_commit."),
    ("error: could not lock config file .git/config: Read-only file system", WRITING, "--git writable"),
    ("touch: '/usr/x': Read-only file system", WRITING, "roots"),
    ("touch: '/w/.gitmodules': Read-only file system", WRITING, "act upon"),
    ("touch: '/w/.git/hooks/x': Read-only file system", COMMITTING, "act upon"),
    ("curl: (6) Could not resolve host: a", WRITING, "--network commands"),
    ("bash: kill: (7) - Operation not permitted", COMMITTING, "it started"),
    ("pkill: killing pid 7 failed: Operation not permitted", COMMITTING, "it started"),
]


def test_a_denial_names_what_lifts_it_or_how_far_it_goes() -> None:
    for output, confined, says in DENIALS:
        (note,) = explain(output, 0, confined)
        assert says in note


def test_other_failures_are_left_to_speak_for_themselves() -> None:
    for output in ("", "No such file or directory", "read-only", "the network"):
        assert explain(output, 1, READING) == ()
    # Where there is a network, its failures are its own.
    assert explain("Could not resolve host: a", 6, COMMITTING) == ()
    # Where nothing confines commands, nothing is said of a sandbox.
    assert explain("touch: '/x': Read-only file system\nCould not resolve host: a", 1, None) == ()


MISSING = (
    "bash: line 1: cargo: command not found",
    "bash: cargo: command not found",
    "sh: 1: cargo: not found",
    "/bin/sh: 3: cargo: not found",
    "cargo: not found",
    "one\nbash: line 7: cargo: command not found\nthree",
    "/usr/bin/env: ‘cargo’: No such file or directory",
    "env: 'cargo': No such file or directory",
)


def test_a_missing_program_is_named() -> None:
    for output in MISSING:
        (note,) = explain(output, 0, WRITING)
        assert note.startswith("cargo is not on the PATH of commands here")
    others = ("the file was not found", "a b: not found", "x: not found (yet)", "error: a: key not found!")
    for output in others:
        assert explain(output, 0, WRITING) == ()


def test_a_killed_process_is_said() -> None:
    for output, status in (("", 137), ("bash: line 1:    12 Killed                  python3 x.py", 0)):
        (note,) = explain(output, status, None)
        assert "SIGKILL" in note
