"""What only Linux guarantees: `pytest --process-layer posix` leaves out the tests of it."""

SUITES = (
    *(f"tests/search/test_{name}.py" for name in ("search", "grep_search")),
    *(
        f"tests/git/test_{name}.py"
        for name in (
            *("git_reads", "git_commit", "git_branch"),
            *("git_restore", "repo_clone", "git_hardening", "git_places", "enter_worktree"),
        )
    ),
    *(
        f"tests/lsp/test_{name}.py"
        for name in ("lsp", "lsp_fallback", "lsp_hostile_edits", "lsp_hostile_servers")
    ),
    *(f"tests/shell/test_{name}.py" for name in ("bash", "open_files")),
    *("tests/repl/test_repl.py", "tests/protocol/test_end_of_input.py", "tests/pipeline/test_fairness.py"),
    "tests/app/test_shutdown.py",
)
"""What the step `long` runs on the POSIX layer. Tests of brokers, processes, command limits and interactive
commands run on both layers without the option."""

LINUX_ONLY = (
    "tests/search/test_search.py::test_the_kernel_holds_a_search_program_to_its_folder",
    "tests/search/test_search.py::test_what_cannot_be_read_is_named_and_the_rest_is_found",
    "tests/search/test_search.py::test_commands_have_it_in_bubblewrap_and_behind_landlock_alone",
    "tests/search/test_search.py::test_commands_search_with_the_ripgrep_of_the_server[read-only]",
    *(
        f"tests/app/test_shutdown.py::test_a_server_on_stdio_ends_with_all_that_it_started[{case}]"
        for case in ("end-of-input-workspace-write",)
    ),
    "tests/repl/test_repl.py::test_figures_come_back_once_as_pictures_where_nothing_can_be_written",
    "tests/repl/test_repl.py::test_where_only_landlock_is_there_sessions_run_and_write_nothing",
    "tests/git/test_enter_worktree.py::test_a_rule_on_a_file_holds_in_a_worktree_and_for_git_too",
    "tests/git/test_repo_clone.py::test_without_network_only_folders_are_cloned_and_what_programs_act_upon_is_set_aside",
    "tests/git/test_repo_clone.py::test_where_no_git_folder_may_be_made_it_is_not_offered",
    *(
        f"tests/shell/test_open_files.py::{test}[workspace-write]"
        for test in (
            "test_a_server_without_descriptors_says_so_and_goes_on_when_there_are_some",
            "test_a_broker_without_descriptors_is_named_and_serves_the_next_command",
        )
    ),
)
"""What proves that bubblewrap, Landlock and seccomp hold a command, whatever it does: files, test functions
or single cases, as pytest names them."""


def proven_by(test: str) -> bool:
    """Whether only Linux must pass the test called `test`: an entry is its name, its function or its file."""
    return any(test == entry or test.startswith((f"{entry}[", f"{entry}::")) for entry in LINUX_ONLY)
