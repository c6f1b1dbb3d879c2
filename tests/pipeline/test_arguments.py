"""Arguments as clients send them: what is mended, and what no tool ever sees."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from mcp_toolserver.text.argument_cleanup import MAX_DEPTH, SAFE_INTEGER, lenient, placeholders, refusal

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


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="nan"),
        pytest.param(float("-inf"), id="infinity"),
        pytest.param(SAFE_INTEGER + 1, id="beyond-safe"),
        pytest.param(-(10**4000), id="JSON02"),
        pytest.param("a\0b", id="nul"),
        pytest.param("\ud800", id="JSON05"),
        pytest.param({"k\0": 1}, id="nul-in-key"),
        pytest.param([{"a": ["\udfff"]}], id="deep-surrogate"),
        pytest.param(nested(MAX_DEPTH + 1), id="deep"),
    ],
)
def test_values_that_no_tool_may_see_are_refused(value: JsonValue) -> None:
    assert refusal(value)


@pytest.mark.parametrize(
    "value",
    [SAFE_INTEGER, -SAFE_INTEGER, 1.5, True, None, "日本 🎉\r\n\t", nested(MAX_DEPTH), {"a": [{}]}],
    ids=str,
)
def test_ordinary_values_pass(value: JsonValue) -> None:
    assert refusal(value) is None


@given(
    st.recursive(st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab"), st.lists, max_leaves=20)
)
def test_whatever_json_carries_within_bounds_passes(value: JsonValue) -> None:
    assert refusal(value) is None


def test_lists_and_objects_sent_as_text_are_parsed() -> None:
    sent: dict[str, JsonValue] = {"path": "x", "edits": json.dumps([1]), "options": json.dumps({"a": 1})}
    assert lenient(sent, SCHEMA) == {"path": "x", "edits": [1], "options": {"a": 1}}


@pytest.mark.parametrize(
    "text", ["[1", '{"a": 1}', "1", "[" * 100_000], ids=["broken", "object", "number", "deep"]
)
def test_text_that_is_no_list_stays_for_validation(text: str) -> None:
    assert lenient({"path": "x", "edits": text}, SCHEMA)["edits"] == text


def test_text_for_a_text_argument_is_never_parsed() -> None:
    assert lenient({"path": "[1]"}, SCHEMA) == {"path": "[1]"}


@pytest.mark.parametrize("nothing", [None, ""], ids=["null", "empty"])
def test_nothing_for_an_optional_argument_is_as_if_it_was_not_sent(nothing: JsonValue) -> None:
    assert lenient({"path": "x", "note": nothing, "edits": nothing}, SCHEMA) == {"path": "x"}


@pytest.mark.parametrize("nothing", [None, ""], ids=["null", "empty"])
def test_nothing_for_a_required_argument_stays(nothing: JsonValue) -> None:
    assert lenient({"path": nothing}, SCHEMA) == {"path": nothing}


def test_zero_and_false_are_values() -> None:
    assert lenient({"path": "x", "note": False, "edits": 0}, SCHEMA) == {
        "path": "x",
        "note": False,
        "edits": 0,
    }


def test_an_unknown_argument_stays_for_validation() -> None:
    assert lenient({"path": "x", "nope": 0}, SCHEMA) == {"path": "x", "nope": 0}


@pytest.mark.parametrize("nothing", [None, "", [], {}], ids=str)
def test_an_unknown_argument_with_nothing_in_it_asks_for_nothing(nothing: JsonValue) -> None:
    assert lenient({"path": "x", "nope": nothing}, {**SCHEMA, "additionalProperties": False}) == {"path": "x"}


def test_where_any_argument_is_allowed_all_of_them_stay() -> None:
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
    sent: dict[str, JsonValue] = {
        "needed": 0,
        "count": 0,
        "given": 1,
        "ratio": 0.0,
        "word": "",
        "other_word": 0,
        "is_on": False,
        "any": 0,
        "unknown": 0,
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
