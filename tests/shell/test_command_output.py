"""What is said of a command that was kept from something, or whose end undoes something."""

from dataclasses import replace
from pathlib import Path

from mcp_toolserver.text.shell.command_output import Confined, explain, script_notes
from tests.support.cases import table

TABLES = Path(__file__).with_name("command_output.txt")


READING = Confined(writes=False, git=False, network="fetch")
WRITING = Confined(writes=True, git=False, network="fetch")
COMMITTING = Confined(writes=True, git=True, network="commands")
CONFINED = {
    "reading": READING,
    "writing": WRITING,
    "with tools": replace(WRITING, git_tools=("git_branch", "git_commit")),
    "hosts": replace(WRITING, network="hosts"),
    "committing": COMMITTING,
}


def test_a_denial_names_what_lifts_it_or_how_far_it_goes() -> None:
    for confined, says, output in table(TABLES, "denied"):
        (note,) = explain(output, 0, CONFINED[confined])
        assert says in note, output


def test_no_path_is_advised_to_a_call_that_does_not_write() -> None:
    locked = "fatal: Unable to create '/w/.git/index.lock': Read-only file system"
    for output in (locked, "touch: '/usr/x': Read-only file system"):
        (note,) = explain(output, 1, WRITING, read_only=True)
        assert "plan mode" in note
        assert "roots" not in note


SCRIPTS = {
    "python3 -m http.server > log 2>&1 & ls": "`python3 -m http.server` was stopped",
    "make && (cd a; ./serve &)": "`./serve` was stopped",
    "mkdir x; cd x": "`cwd`",
    "cd 'a & b' # there": "`cwd`",
}
NOTHING_UNDONE = (
    *("cd a && make", "a & wait", "make 2>&1 | tail", "make &> log", "echo 'x &' \\&", "a && b", "a |& b"),
    *("a & kill %1", "cat <<EOF\na & b\nEOF", "echo cd", "# cd x"),
)


def test_what_the_end_of_a_script_undoes_is_said() -> None:
    for script, says in SCRIPTS.items():
        (note,) = script_notes(script)
        assert says in note, script
    for script in NOTHING_UNDONE:
        assert script_notes(script) == (), script


def test_other_failures_are_left_to_speak_for_themselves() -> None:
    for output in ("", "No such file or directory", "read-only", "the network"):
        assert explain(output, 1, READING) == ()
    # Where there is a network, its failures are its own.
    assert explain("Could not resolve host: a", 6, COMMITTING) == ()
    # Where nothing confines commands, nothing is said of a sandbox.
    assert explain("touch: '/x': Read-only file system\nCould not resolve host: a", 1, None) == ()


MISSING = (
    "bash: line 1: cargo: command not found",
    "sh: 1: cargo: not found",
    "one\nbash: line 7: cargo: command not found\nthree",
    "/usr/bin/env: ‘cargo’: No such file or directory",
)


def test_a_missing_program_is_named() -> None:
    for output in MISSING:
        (note,) = explain(output, 0, WRITING)
        assert note.startswith("cargo is not on the PATH of commands here")
    others = ("the file was not found", "a b: not found", "x: not found (yet)", "error: a: key not found!")
    for output in others:
        assert explain(output, 0, WRITING) == ()
