"""Questions as forms, and what counts as an answer."""

from mcp_toolserver.capabilities.user import Answers, Choice, FormContent, Question
from mcp_toolserver.protocol.elicitation import MAX_CHARACTERS, Form

WORDS = Question(text="Why?")
ONE = Question(
    text="Which?", header="Pick", choices=(Choice(label="a", description="the first"), Choice(label="b"))
)
SEVERAL = Question(text="What with?", choices=(Choice(label="x"), Choice(label="y")), several=True)
OPEN = Question(text="Anything else?", required=False)


def form(*questions: Question, lists: bool = True) -> Form:
    return Form(questions=questions, lists=lists)


def in_words(question: str) -> dict[str, object]:
    """The field of a question that is answered in words."""
    return {"title": question, "description": question, "type": "string", "maxLength": 4000}


def test_there_is_a_flat_field_for_each_question() -> None:
    several = {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}
    assert form(WORDS, ONE, SEVERAL, OPEN).schema == {
        "type": "object",
        "properties": {
            "answer_1": in_words("Why?"),
            "answer_2": {"title": "Pick", "description": "Which?", "type": "string", "enum": ["a", "b"]},
            "answer_3": {"title": "What with?", "description": "What with?", **several},
            "answer_4": in_words("Anything else?"),
        },
        "required": ["answer_1", "answer_2", "answer_3"],
    }
    assert form(ONE).message == "Which?\n- a: the first\n- b"
    # An old client gets a switch for each of several choices.
    assert form(SEVERAL, WORDS, lists=False).schema == {
        "type": "object",
        "properties": {
            "answer_1_1": {"type": "boolean", "title": "x", "description": ""},
            "answer_1_2": {"type": "boolean", "title": "y", "description": ""},
            "answer_2": in_words("Why?"),
        },
        "required": ["answer_2"],
    }


SWITCHES = form(SEVERAL, lists=False)
ANSWERS: tuple[tuple[Form, FormContent, Answers | None], ...] = (
    (form(WORDS), {"answer_1": "so"}, (("so",),)),
    (form(WORDS), {"answer_1": "x" * MAX_CHARACTERS}, (("x" * MAX_CHARACTERS,),)),
    (form(ONE), {"answer_1": "b"}, (("b",),)),
    # Several come in their order, and each once.
    (form(SEVERAL), {"answer_1": ["y", "x"]}, (("x", "y"),)),
    (form(SEVERAL), {"answer_1": ["y", "y"]}, (("y",),)),
    (form(SEVERAL), {"answer_1": []}, ((),)),
    (SWITCHES, {"answer_1_1": False, "answer_1_2": True}, (("y",),)),
    (SWITCHES, {"answer_1_1": True}, (("x",),)),
    (form(OPEN), {}, ((),)),
    (form(OPEN), {"answer_1": ""}, ((),)),
    (form(OPEN), {"answer_1": None}, ((),)),
    (form(WORDS, OPEN), {"answer_1": "a", "answer_2": "b"}, (("a",), ("b",))),
    (form(WORDS), {}, None),
    (form(WORDS), {"answer_1": ""}, None),
    (form(WORDS), {"answer_1": 5}, None),
    (form(WORDS), {"answer_1": True}, None),
    (form(WORDS), {"answer_1": "x" * (MAX_CHARACTERS + 1)}, None),
    # A field of another form.
    (form(WORDS), {"answer_1": "a", "mode": "full"}, None),
    (form(ONE), {"answer_1": "c"}, None),
    (form(ONE), {"answer_1": ["a"]}, None),
    (form(SEVERAL), {"answer_1": ["x", "z"]}, None),
    (form(SEVERAL), {"answer_1": "x"}, None),
    (form(SEVERAL), {}, None),
    (form(SEVERAL), {"answer_1": True}, None),
    (SWITCHES, {"answer_1_1": "x"}, None),
    (SWITCHES, {"answer_1": ["x"]}, None),
)


def test_only_what_fits_the_form_is_an_answer() -> None:
    for asked, content, answers in ANSWERS:
        assert asked.answers(content) == answers, content
