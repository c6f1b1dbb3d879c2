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


IN_GATE = (
    *("tests/search/test_search.py", "tests/search/test_grep_search.py", "tests/git/test_git_status.py"),
    *("tests/git/test_git_commit.py", "tests/repl/test_repl.py", "tests/lsp/test_lsp_fallback.py"),
    *("tests/shell/test_bash.py", "tests/shell/test_killing.py", "tests/protocol/test_end_of_input.py"),
)
"""What the step `posix` of the gate runs. `test_broker.py`, `test_processes.py`, `test_command_limits.py` and
`test_interactive.py` run on both layers without the option."""

SUITES = (
    *IN_GATE,
    *("tests/search/test_glob_search.py", "tests/git/test_git_branch.py", "tests/git/test_git_diff.py"),
    *("tests/git/test_git_log.py", "tests/git/test_git_show.py", "tests/git/test_git_blame.py"),
    *(
        "tests/git/test_git_restore.py",
        "tests/git/test_repo_overview.py",
        "tests/git/test_repo_clone.py",
    ),
    *("tests/git/test_git_hardening.py", "tests/git/test_git_places.py", "tests/git/test_enter_worktree.py"),
    *("tests/lsp/test_lsp.py", "tests/lsp/test_lsp_edit.py", "tests/lsp/test_lsp_hostile_edits.py"),
    *(
        "tests/lsp/test_lsp_hostile_servers.py",
        "tests/pipeline/test_fairness.py",
        "tests/shell/test_open_files.py",
    ),
    *("tests/app/test_shutdown.py", "tests/git/test_git_served.py", "tests/lsp/test_lsp_served.py"),
)
"""What the step `long` runs on the POSIX layer."""

_SANDBOX = Guarantee(
    sentence="Bubblewrap, Landlock and seccomp hold a command, whatever it does.",
    documented="probe commands in them before the first command",
    tests=(
        "tests/search/test_search.py::test_the_kernel_holds_a_search_program_to_its_folder",
        "tests/app/test_shutdown.py::test_what_runs_in_a_sandbox_ends_as_well",
        "tests/repl/test_repl.py::test_sessions_are_in_the_sandbox_of_commands",
        "tests/repl/test_repl.py::test_a_server_that_the_kernel_holds_runs_sessions",
        "tests/repl/test_repl.py::test_python_plots_where_nothing_can_be_written",
        "tests/repl/test_repl.py::test_where_only_landlock_is_there_sessions_run_and_write_nothing",
        "tests/repl/test_repl.py::test_in_a_sandbox_nothing_reaches_what_listens_outside",
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

_CONFINED = Guarantee(
    sentence="Git and language servers run in the confined modes, because a sandbox was proven.",
    documented="commands, searches and git are then refused below danger-full-access",
    tests=(
        *(
            f"tests/git/test_git_served.py::test_{test}"
            for test in (
                "a_git_that_is_stopped_leaves_the_repository_whole",
                "a_linked_work_tree_in_the_roots_has_its_own_branch",
                "a_rule_of_the_operator_holds",
                "a_store_that_a_repository_borrows_from_is_not_written",
                "every_question_is_answered_and_nothing_runs_or_changes",
                "git_writes_nowhere_but_in_the_git_folder",
                "nothing_of_a_repository_runs_where_commands_could_run_it[writable]",
                "nothing_of_a_repository_runs_and_only_git_folders_change",
                "protected_names_stay_as_they_are",
                "the_git_folder_of_another_place_is_not_written",
                "the_hint_names_what_is_offered",
                "the_tools_commit_where_a_command_cannot",
                "the_user_is_the_author_and_settings_of_the_repository_are_not",
                "they_need_workspace_write",
                "what_the_server_keeps_to_itself_is_hidden_from_git_too",
                "without_git_the_tools_are_not_offered",
                "without_bubblewrap_they_need_the_operators_consent",
            )
        ),
        *(
            f"tests/lsp/test_lsp_served.py::test_{test}"
            for test in (
                "a_language_server_of_go_gets_a_build_cache_that_it_can_write",
                "a_rename_needs_workspace_write_and_spares_protected_names",
                "read_only_holds_for_a_language_server_and_it_ends_with_the_server",
                "where_a_language_server_may_write_the_tool_does_not_claim_to_read_only",
                "where_a_language_server_reaches_further_the_tool_says_so[with a network]",
                "where_no_command_can_be_confined_a_search_answers_and_only_reads",
            )
        ),
    ),
)
LINUX_ONLY = (_SANDBOX, _CONFINED)


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
