"""Arguments as clients send them: what is mended, and what no tool ever sees."""

import json
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.text.argument_cleanup import MAX_DEPTH, SAFE_INTEGER, lenient, placeholders, refusal
from tests.support.cases import table
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

ARGUMENTS = Path(__file__).with_name("arguments.txt")


def test_what_says_the_same_is_taken() -> None:
    taken = [(tool, json.loads(sent), json.loads(counts)) for tool, sent, counts in table(ARGUMENTS, "taken")]
    assert [(tool, sent, lenient(sent, SCHEMAS[tool])) for tool, sent, _ in taken] == taken


def test_what_would_change_the_meaning_is_left_for_validation() -> None:
    left = [(tool, json.loads(sent)) for tool, sent in table(ARGUMENTS, "left")]
    assert [(tool, lenient(sent, SCHEMAS[tool])) for tool, sent in left] == left
