"""Questions as forms, and what counts as an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mcp_toolserver.capabilities.user import Answers, Choice, Question
from mcp_toolserver.protocol.elicitation.form import MAX_CHARACTERS, Content, Form

WORDS = Question(text="Why?")
ONE = Question(
    text="Which?", header="Pick", choices=(Choice(label="a", description="the first"), Choice(label="b"))
)
SEVERAL = Question(text="What with?", choices=(Choice(label="x"), Choice(label="y")), several=True)
OPEN = Question(text="Anything else?", required=False)


def form(*questions: Question, lists: bool = True) -> Form:
    return Form(questions=questions, lists=lists)


def test_a_single_question_is_shown_with_what_its_choices_mean() -> None:
    assert form(ONE).message == "Which?\n- a: the first\n- b"


def test_several_questions_are_numbered() -> None:
    assert form(WORDS, SEVERAL).message == "1. Why?\n\n2. What with?\n- x\n- y"


def test_there_is_a_flat_field_for_each_question() -> None:
    assert form(WORDS, ONE, SEVERAL, OPEN).schema == {
        "type": "object",
        "properties": {
            "answer_1": {"title": "Why?", "description": "Why?", "type": "string", "maxLength": 4000},
            "answer_2": {"title": "Pick", "description": "Which?", "type": "string", "enum": ["a", "b"]},
            "answer_3": {
                "title": "What with?",
                "description": "What with?",
                "type": "array",
                "items": {"type": "string", "enum": ["x", "y"]},
            },
            "answer_4": {
                "title": "Anything else?",
                "description": "Anything else?",
                "type": "string",
                "maxLength": 4000,
            },
        },
        "required": ["answer_1", "answer_2", "answer_3"],
    }


def test_an_old_client_gets_a_switch_for_each_of_several_choices() -> None:
    assert form(SEVERAL, WORDS, lists=False).schema == {
        "type": "object",
        "properties": {
            "answer_1_1": {"type": "boolean", "title": "x", "description": ""},
            "answer_1_2": {"type": "boolean", "title": "y", "description": ""},
            "answer_2": {"title": "Why?", "description": "Why?", "type": "string", "maxLength": 4000},
        },
        "required": ["answer_2"],
    }


@pytest.mark.parametrize(
    ("asked", "content", "answers"),
    [
        pytest.param(form(WORDS), {"answer_1": "so"}, (("so",),), id="words"),
        pytest.param(form(ONE), {"answer_1": "b"}, (("b",),), id="one"),
        pytest.param(form(SEVERAL), {"answer_1": ["y", "x"]}, (("x", "y"),), id="several, in their order"),
        pytest.param(form(SEVERAL), {"answer_1": ["y", "y"]}, (("y",),), id="one of several, twice"),
        pytest.param(form(SEVERAL), {"answer_1": []}, ((),), id="none of several"),
        pytest.param(
            form(SEVERAL, lists=False), {"answer_1_1": False, "answer_1_2": True}, (("y",),), id="switches"
        ),
        pytest.param(form(SEVERAL, lists=False), {"answer_1_1": True}, (("x",),), id="a switch left alone"),
        pytest.param(form(OPEN), {}, ((),), id="left open"),
        pytest.param(form(OPEN), {"answer_1": ""}, ((),), id="left empty"),
        pytest.param(form(OPEN), {"answer_1": None}, ((),), id="null"),
        pytest.param(form(WORDS, OPEN), {"answer_1": "a", "answer_2": "b"}, (("a",), ("b",)), id="two"),
        pytest.param(form(WORDS), {}, None, id="missing"),
        pytest.param(form(WORDS), {"answer_1": ""}, None, id="empty"),
        pytest.param(form(WORDS), {"answer_1": 5}, None, id="number for words"),
        pytest.param(form(WORDS), {"answer_1": True}, None, id="boolean for words"),
        pytest.param(form(WORDS), {"answer_1": "x" * 4_001}, None, id="too long"),
        pytest.param(form(WORDS), {"answer_1": "a", "mode": "full"}, None, id="STATE09"),
        pytest.param(form(ONE), {"answer_1": "c"}, None, id="no such choice"),
        pytest.param(form(ONE), {"answer_1": ["a"]}, None, id="list for one"),
        pytest.param(form(SEVERAL), {"answer_1": ["x", "z"]}, None, id="no such choice of several"),
        pytest.param(form(SEVERAL), {"answer_1": "x"}, None, id="words for several"),
        pytest.param(form(SEVERAL), {}, None, id="several, missing"),
        pytest.param(form(SEVERAL), {"answer_1": True}, None, id="a switch for several"),
        pytest.param(form(SEVERAL, lists=False), {"answer_1_1": "x"}, None, id="words for a switch"),
        pytest.param(
            form(SEVERAL, lists=False), {"answer_1": ["x"]}, None, id="list where there are switches"
        ),
    ],
)
def test_only_what_fits_the_form_is_an_answer(asked: Form, content: Content, answers: Answers | None) -> None:
    assert asked.answers(content) == answers


def test_the_longest_answer_in_words_is_one() -> None:
    assert form(WORDS).answers({"answer_1": "x" * MAX_CHARACTERS}) == (("x" * MAX_CHARACTERS,),)


VALUES: Any = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(),
    some.sampled_from(["a", "b", "x", "", "c"]),
    some.lists(some.sampled_from(["x", "y", "a"])),
)
NAMES = some.sampled_from(["answer_1", "answer_2", "answer_3", "answer_3_1", "answer_3_2", "other"])


@given(some.dictionaries(NAMES, VALUES), some.booleans())
def test_no_answer_holds_what_was_not_offered(content: dict[str, Any], lists: bool) -> None:
    answers = form(OPEN, ONE, SEVERAL, lists=lists).answers(content)
    if answers is not None:
        words, one, several = answers
        assert len(words) <= 1
        assert one in (("a",), ("b",))
        assert set(several) <= {"x", "y"}
