"""Arguments as clients send them: what is mended, and what no tool ever sees."""

import json
from typing import Any

from pydantic import JsonValue

from mcp_toolserver.text.argument_cleanup import MAX_DEPTH, SAFE_INTEGER, lenient, placeholders, refusal
from tests.support.generated import ENTRIES

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "note": {"type": "string"},
        "edits": {"type": "array"},
        "options": {"type": "object"},
    },
    "required": ["path"],
}


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED: dict[str, JsonValue] = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "beyond safe": SAFE_INTEGER + 1,
    "JSON02": -(10**4000),
    "nul": "a\0b",
    "JSON05": "\ud800",
    "nul in key": {"k\0": 1},
    "deep surrogate": [{"a": ["\udfff"]}],
    "deep": nested(MAX_DEPTH + 1),
}
ORDINARY: tuple[JsonValue, ...] = (
    *(SAFE_INTEGER, -SAFE_INTEGER, 1.5, True, None, "日本 🎉\r\n\t"),
    *(nested(MAX_DEPTH), {"a": [{}]}),
)


def test_only_values_that_no_tool_may_see_are_refused() -> None:
    assert [name for name, value in REFUSED.items() if not refusal(value)] == []
    assert [value for value in ORDINARY if refusal(value)] == []


def test_lists_and_objects_sent_as_text_are_parsed() -> None:
    sent: dict[str, JsonValue] = {"path": "x", "edits": json.dumps([1]), "options": json.dumps({"a": 1})}
    assert lenient(sent, SCHEMA) == {"path": "x", "edits": [1], "options": {"a": 1}}


def test_text_that_is_no_list_stays_for_validation() -> None:
    for text in ("[1", '{"a": 1}', "1", "[" * 100_000):
        assert lenient({"path": "x", "edits": text}, SCHEMA)["edits"] == text
    assert lenient({"path": "[1]"}, SCHEMA) == {"path": "[1]"}, "where a text is expected"


def test_nothing_counts_as_not_sent_where_the_argument_is_optional() -> None:
    for nothing in (None, ""):
        assert lenient({"path": "x", "note": nothing, "edits": nothing}, SCHEMA) == {"path": "x"}
        assert lenient({"path": nothing}, SCHEMA) == {"path": nothing}
    values: dict[str, JsonValue] = {"path": "x", "note": False, "edits": 0}
    assert lenient(values, SCHEMA) == values


def test_an_unknown_argument_stays_for_validation_unless_it_holds_nothing() -> None:
    closed: dict[str, JsonValue] = {**SCHEMA, "additionalProperties": False}
    assert lenient({"path": "x", "nope": 0}, closed) == {"path": "x", "nope": 0}
    for nothing in (None, "", [], {}):
        assert lenient({"path": "x", "nope": nothing}, closed) == {"path": "x"}
    # Where any argument is allowed, all of them stay.
    sent: dict[str, JsonValue] = {"path": "x", "nope": "", "explanation": "of the user's"}
    assert lenient(sent, SCHEMA) == sent


def test_an_optional_argument_that_is_the_zero_of_its_type_may_be_a_placeholder() -> None:
    schema: dict[str, JsonValue] = {
        "properties": {
            **{name: {"type": "integer"} for name in ("needed", "count", "given", "absent")},
            "ratio": {"type": "number"},
            "word": {"type": "string"},
            "other_word": {"type": "string"},
            "is_on": {"type": "boolean"},
            "any": {},
        },
        "required": ["needed"],
    }
    zeros = ("needed", "count", "other_word", "any", "unknown")
    sent: dict[str, JsonValue] = {
        **dict.fromkeys(zeros, 0),
        "given": 1,
        "ratio": 0.0,
        "word": "",
        "is_on": False,
    }
    assert placeholders(sent, schema) == {"count", "ratio", "word"}


def test_an_empty_field_of_an_object_counts_as_not_sent_wherever_the_object_is() -> None:
    item: JsonValue = {
        "type": "object",
        "properties": {"what": {"type": "string"}, "how": {"type": "string"}, "free": {"minLength": 0}},
        "required": ["what"],
    }
    schema: dict[str, JsonValue] = {
        "properties": {"one": item, "all": {"type": "array", "items": item}, "any": {"type": "object"}}
    }
    given: dict[str, JsonValue] = {"what": "", "how": "", "free": ""}
    kept: dict[str, JsonValue] = {"what": "", "free": ""}
    sent: dict[str, JsonValue] = {"one": given, "all": [given, "text", json.dumps(given)], "any": given}
    assert lenient(sent, schema) == {"one": kept, "all": [kept, "text", kept], "any": given}


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
    ("read_file", {"path": "a", "view_range": [3, 4]}, {"path": "a", "offset": 2, "limit": 2}),
    ("read_file", {"path": "a", "view_range": [3, -1]}, {"path": "a", "offset": 2}),
    ("read_file", {"path": "a", "tail": 5}, {"path": "a", "offset": -5}),
    ("read_file", {"path": "a.pdf", "pages": "3"}, {"path": "a.pdf", "offset": 2, "limit": 1}),
    ("read_file", {"file_path": "a.PDF", "pages": "2-9"}, {"path": "a.PDF", "offset": 1, "limit": 8}),
    ("ls", {"dir_path": "a"}, {"path": "a"}),
    ("bash", {"command": "a", "dir_path": "b"}, {"command": "a", "cwd": "b"}),
    ("grep_search", {"pattern": "a", "hidden": True}, {"pattern": "a", "include_ignored": True}),
    ("grep_search", {"pattern": "a", "hidden": False}, {"pattern": "a"}),
    ("glob_search", {"pattern": "a", "max_results": 5}, {"pattern": "a", "limit": 5}),
    ("write_file", {"content": "a", "mode": "append"}, {"content": "a", "append": True}),
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
    ("read_file", {"path": "a", "view_range": [3, 2]}),
    ("read_file", {"path": "a", "view_range": [0, 2]}),
    ("read_file", {"path": "a", "tail": 0}),
    ("read_file", {"path": "a.txt", "pages": "1-5"}),
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
