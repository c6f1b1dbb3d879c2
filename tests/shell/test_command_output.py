"""The output of commands as on a terminal, and what is said of a command that was kept from something."""

from dataclasses import replace
from pathlib import Path

from mcp_toolserver.text.shell.command_output import Confined, explain, script_notes
from tests.support import processes
from tests.support.processes import served

PRINTED = {
    "colours": ("\\033[1;31mred\\033[0m plain", "red plain"),
    "extended-colours": ("\\033[38;2;1;2;3mx\\033[48:5:9my\\033[m", "xy"),
    "reset-of-tput": ("bold\\033(B\\033[m", "bold"),
    "progress-bar": ("10%%\\r20%%\\r100%%\\nend", "100%\nend"),
    "progress-bar-that-erases": ("10%%\\r\\033[K20%%\\033[2K\\r30%%\\033[K\\r\\n", "30%"),
    "carriage-returns-at-line-ends": ("a\\r\\nb\\r\\n", "a\r\nb\r\n"),
    "order": ("\\342\\200\\256", "\\u{202e}"),
    "no UTF-8": ("\\355\\240\\200", "\ufffd\ufffd\ufffd"),
    "zero": ("a\\000b", "a\\u{0}b"),
    "return": ("a\\r\\033[1Ab", "\\u{1b}[1Ab"),
    "no control": ("caf\\303\\251\\t\\342\\224\\200", "café\t─"),
    "cursor": ("a\\033[2Jb\\033[1A\\033[2K", "a\\u{1b}[2Jb\\u{1b}[1A\\u{1b}[2K"),
}


async def test_a_command_is_shown_as_on_a_terminal_with_what_its_end_undoes(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for name, (printed, shown) in PRINTED.items():
            result = await processes.call(at, "bash", command=f"printf '{printed}'")
            assert result.text.rstrip("\n") == shown.rstrip("\n"), name
            started = await processes.call(at, "bash", command=f"printf '{printed}'", run_in_background=True)
            task = started.text.split("bg_")[1][:6]
            followed = await processes.call(at, "TaskOutput", task_id=f"bg_{task}", offset=0, until="end")
            assert followed.text.startswith(shown.rstrip("\n")), name
        # Collapsing a progress bar takes time in proportion to its length.
        megabyte = "head -c 1000000 /dev/zero | tr '\\0' '\\r'; echo; head -c 9000 /dev/zero | tr '\\0' x"
        result = await processes.call(at, "bash", command=megabyte)
        undone = await processes.call(at, "bash", command="sleep 100 & cd /tmp")
    assert result.text.endswith("x" * 9_000)
    assert "`sleep 100` was stopped" in undone.text
    assert "`cwd`" in undone.text


READING = Confined(writes=False, git=False, network="fetch")
WRITING = Confined(writes=True, git=False, network="fetch")
WITH_TOOLS = replace(WRITING, git_tools=("git_branch", "git_commit"))
COMMITTING = Confined(writes=True, git=True, network="commands")


LOCKED = "fatal: Unable to create '/w/.git/index.lock': Read-only file system"

DENIALS = [
    ("bash: f: Read-only file system", READING, "--permission-mode workspace-write"),
    ("Error: EROFS, open 'x'", READING, "--permission-mode workspace-write"),
    (LOCKED, WRITING, "--git protected"),
    (LOCKED, WRITING, "--toolsets default,git"),
    (LOCKED, WITH_TOOLS, "Use these tools: git_branch, git_commit."),
    ("error: could not lock config file .git/config: Read-only file system", WRITING, "--git protected"),
    ("touch: '/usr/x': Read-only file system", WRITING, "roots"),
    ("touch: '/w/.gitmodules': Read-only file system", WRITING, "act upon"),
    ("touch: '/w/.git/hooks/x': Read-only file system", COMMITTING, "act upon"),
    ("error: unable to unlink old '.vscode/a': Read-only file system", COMMITTING, "not change .vscode/a:"),
    ("error: unable to create file .envrc: Read-only file system", COMMITTING, "not change .envrc:"),
    ("curl: (6) Could not resolve host: a", WRITING, "--network commands"),
    ("curl: (6) Could not resolve host: a", replace(WRITING, network="hosts"), "HTTPS_PROXY"),
    ("error: could not write config file .git/config: Device or resource busy", COMMITTING, "names programs"),
    ("ERROR: No matching version of x (from versions: none)", WRITING, "--network commands"),
    ("bash: kill: (7) - Operation not permitted", COMMITTING, "it started"),
    ("pkill: killing pid 7 failed: Operation not permitted", COMMITTING, "it started"),
]


def test_a_denial_names_what_lifts_it_or_how_far_it_goes() -> None:
    for output, confined, says in DENIALS:
        (note,) = explain(output, 0, confined)
        assert says in note


def test_no_path_is_advised_to_a_call_that_does_not_write() -> None:
    for output in (LOCKED, "touch: '/usr/x': Read-only file system"):
        (note,) = explain(output, 1, WRITING, read_only=True)
        assert "plan mode" in note
        assert "roots" not in note


SCRIPTS = {
    "python3 -m http.server > log 2>&1 & ls": "`python3 -m http.server > log 2>&1` was stopped",
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
