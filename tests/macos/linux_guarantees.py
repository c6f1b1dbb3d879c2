"""What only Linux guarantees: `pytest --process-layer posix` leaves out the tests of it."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A guarantee that the POSIX layer does not give."""

    sentence: str
    """What is guaranteed on Linux."""
    documented: str
    """Words of the documentation that say what macOS has instead."""
    tests: tuple[str, ...]
    """Files, test functions or single cases, as pytest names them."""


SUITES = (
    *(f"tests/search/test_{name}.py" for name in ("search", "grep_search", "glob_search")),
    *(
        f"tests/git/test_{name}.py"
        for name in (
            *("git_status", "git_commit", "git_branch", "git_diff", "git_log", "git_show", "git_blame"),
            *("git_restore", "repo_overview", "repo_clone", "git_hardening", "git_places", "enter_worktree"),
        )
    ),
    *(
        f"tests/lsp/test_{name}.py"
        for name in ("lsp", "lsp_edit", "lsp_fallback", "lsp_hostile_edits", "lsp_hostile_servers")
    ),
    *(f"tests/shell/test_{name}.py" for name in ("bash", "killing", "open_files")),
    *("tests/repl/test_repl.py", "tests/protocol/test_end_of_input.py", "tests/pipeline/test_fairness.py"),
    "tests/app/test_shutdown.py",
)
"""What the step `long` runs on the POSIX layer. Tests of brokers, processes, command limits and interactive
commands run on both layers without the option."""

_SANDBOX = Guarantee(
    sentence="Bubblewrap, Landlock and seccomp hold a command, whatever it does.",
    documented="probe commands in them before the first command",
    tests=(
        "tests/search/test_search.py::test_the_kernel_holds_a_search_program_to_its_folder",
        "tests/search/test_search.py::test_what_cannot_be_read_is_named_and_the_rest_is_found",
        "tests/app/test_shutdown.py::test_what_runs_in_a_sandbox_ends_as_well",
        "tests/repl/test_repl.py::test_sessions_are_in_the_sandbox_of_commands",
        "tests/repl/test_repl.py::test_a_server_that_the_kernel_holds_runs_sessions",
        "tests/repl/test_repl.py::test_python_plots_where_nothing_can_be_written",
        "tests/repl/test_repl.py::test_where_only_landlock_is_there_sessions_run_and_write_nothing",
        "tests/repl/test_repl.py::test_an_interpreter_that_the_sandbox_hides_is_named",
        "tests/git/test_enter_worktree.py::test_a_rule_on_a_file_holds_in_a_worktree_too",
        "tests/git/test_repo_clone.py::test_where_commands_have_no_network_only_folders_are_cloned",
        "tests/git/test_repo_clone.py::test_what_programs_act_upon_is_set_aside_and_reported",
        "tests/git/test_repo_clone.py::test_where_no_git_folder_may_be_made_it_is_not_offered",
        *(
            f"tests/shell/test_open_files.py::{test}[{mode}]"
            for test in (
                "test_a_server_without_descriptors_says_so_and_goes_on_when_there_are_some",
                "test_a_broker_without_descriptors_is_named_and_serves_the_next_command",
            )
            for mode in ("read-only", "workspace-write")
        ),
    ),
)

LINUX_ONLY = (_SANDBOX,)


def proven_by(test: str) -> Guarantee | None:
    """The guarantee that the test called `test` proves; None if every layer must pass it."""
    return next((one for one in LINUX_ONLY if any(names(entry, test) for entry in one.tests)), None)


def names(entry: str, test: str) -> bool:
    """Whether an entry of the list names `test`: itself, its function or its file."""
    return test == entry or test.startswith((f"{entry}[", f"{entry}::"))


def entries() -> Iterator[str]:
    """All entries."""
    for one in LINUX_ONLY:
        yield from one.tests
