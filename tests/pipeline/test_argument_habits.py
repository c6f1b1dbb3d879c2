"""Arguments of other servers that our tools lack: taken where one of ours says the same, else unknown."""

from typing import Any

from mcp_toolserver.text.argument_cleanup import lenient
from tests.support.generated import ENTRIES

SCHEMAS = {entry.spec.name: entry.spec.schema for entry in ENTRIES}

TAKEN: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("read_file", {"startLine": 100, "endLine": 110}, {"offset": 99, "limit": 11}),
    ("read_file", {"line_start": 1, "line_end": 1}, {"offset": 0, "limit": 1}),
    (
        "read_file",
        {
            "should_read_entire_file": False,
            "start_line_one_indexed": 3,
            "end_line_one_indexed_inclusive": 4,
        },
        {"offset": 2, "limit": 2},
    ),
    (
        "read_file",
        {"should_read_entire_file": True, "start_line_one_indexed": 1, "end_line_one_indexed_inclusive": 9},
        {},
    ),
    ("read_file", {"path": "a", "explanation": "To see it.", "head": 3}, {"path": "a", "limit": 3}),
    ("read_file", {"path": "a", "view_range": []}, {"path": "a"}),
    ("ls", {"relative_workspace_path": "a", "depth": 1}, {"path": "a"}),
    ("edit_file", {"dryRun": False, "expected_replacements": 1}, {}),
    ("write_file", {"content": "a", "mode": "rewrite"}, {"content": "a"}),
    ("glob_search", {"respectGitIgnore": False}, {"include_ignored": True}),
    ("glob_search", {"respectGitIgnore": True}, {}),
    ("grep_search", {"query": "a", "caseSensitive": False}, {"pattern": "a", "-i": True}),
    ("grep_search", {"query": "f(a.b)", "isRegexp": False}, {"pattern": r"f\(a\.b\)"}),
    ("grep_search", {"pattern": "[1-2] #", "fixed_strings": True}, {"pattern": r"\[1-2\] #"}),
    ("grep_search", {"query": "a.b", "isRegexp": True}, {"pattern": "a.b"}),
    ("grep_search", {"searchType": "content"}, {"output_mode": "content"}),
    ("bash", {"command": ["bash", "-lc", "a | b"]}, {"command": "a | b"}),
    ("bash", {"command": ["echo", "a b"]}, {"command": "echo 'a b'"}),
    ("bash", {"command": "a", "isBackground": True}, {"command": "a", "run_in_background": True}),
    ("bash", {"command": "a", "yield_time_ms": 9, "max_output_tokens": 9}, {"command": "a"}),
    ("git_log", {"repo_path": "a", "file_path": "b/c"}, {"path": "a/b/c"}),
    ("git_log", {"repo_path": "a", "file_path": "/b/c"}, {"path": "/b/c"}),
    ("diff", {"file1": "a", "file2": "b"}, {"path": "a", "other_path": "b"}),
    ("TodoWrite", {"merge": False}, {}),
    (
        "TodoWrite",
        {"todos": [{"id": "1", "content": "a", "status": "pending"}]},
        {"todos": [{"content": "a", "status": "pending"}]},
    ),
    (
        "NotebookEdit",
        {"editType": "insert", "language": "markdown", "newCode": ["# A\n", "b"]},
        {"edit_mode": "insert", "cell_type": "markdown", "new_source": "# A\nb"},
    ),
    (
        "NotebookEdit",
        {"cell_idx": 1, "is_new_cell": False, "cell_language": "python"},
        {"cell_number": 1, "edit_mode": "replace", "cell_type": "code"},
    ),
)

LEFT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"startLine": 5, "endLine": 3}),
    ("read_file", {"startLine": 5}),
    ("read_file", {"startLine": 1, "endLine": 2, "offset": 4}),
    ("read_file", {"explanation": 5}),
    ("edit_file", {"dryRun": True}),
    ("edit_file", {"expected_replacements": 2}),
    ("edit_file", {"expected_replacements": True}),
    ("write_file", {"mode": "append"}),
    ("ls", {"depth": 2}),
    ("glob_search", {"respect_git_ignore": False, "include_ignored": False}),
    ("glob_search", {"case_sensitive": False}),
    ("grep_search", {"is_regexp": False}),
    ("bash", {"command": ["echo", 5]}),
    ("bash", {"command": []}),
    ("bash", {"command": "a", "shell": "fish"}),
    ("bash", {"command": "a", "require_user_approval": True}),
    ("NotebookEdit", {"new_source": ["a", 5]}),
    ("git_log", {"repo_path": 5, "file_path": "a"}),
    ("read_file", {"isRegexp": True, "is_regexp": False}),
)


def test_what_says_the_same_is_taken() -> None:
    made = [(tool, sent, lenient(sent, SCHEMAS[tool])) for tool, sent, _ in TAKEN]
    assert made == [*TAKEN]


def test_what_would_change_the_meaning_is_left_for_validation() -> None:
    assert [(tool, lenient(sent, SCHEMAS[tool])) for tool, sent in LEFT] == [*LEFT]
