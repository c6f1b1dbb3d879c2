"""How AskUserQuestion and pause_for_human ask, what counts as an answer, and what SendUserMessage tells."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client

from mcp_toolserver.capabilities.user import Answers, Choice, FormContent, Question
from mcp_toolserver.errors import NobodyToAsk
from mcp_toolserver.protocol.elicitation import MAX_CHARACTERS, Form
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from tests.plan.planning import Human, host, planner, refused_each
from tests.support.live import ERAS, Setup, text
from tests.support.workbench import Person, call, dispatcher

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
    (form(SEVERAL), {"answer_1": []}, ((),)),
    (SWITCHES, {"answer_1_1": False, "answer_1_2": True}, (("y",),)),
    (form(OPEN), {}, ((),)),
    (form(OPEN), {"answer_1": ""}, ((),)),
    (form(WORDS, OPEN), {"answer_1": "a", "answer_2": "b"}, (("a",), ("b",))),
    (form(WORDS), {}, None),
    (form(WORDS), {"answer_1": ""}, None),
    (form(WORDS), {"answer_1": 5}, None),
    (form(WORDS), {"answer_1": "x" * (MAX_CHARACTERS + 1)}, None),
    # A field of another form.
    (form(WORDS), {"answer_1": "a", "mode": "full"}, None),
    (form(ONE), {"answer_1": "c"}, None),
    (form(SEVERAL), {"answer_1": ["x", "z"]}, None),
    (form(SEVERAL), {"answer_1": "x"}, None),
    (form(SEVERAL), {}, None),
    (SWITCHES, {"answer_1_1": "x"}, None),
    (SWITCHES, {"answer_1": ["x"]}, None),
)


def test_only_what_fits_the_form_is_an_answer() -> None:
    for asked, content, answers in ANSWERS:
        assert asked.answers(content) == answers, content


WHY: dict[str, Any] = {"questions": [{"question": "why?"}]}
FIXED = str(NobodyToAsk())


FULL = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "red", "description": "as blood"}, {"label": "blue"}],
}
PLAIN = Question(
    text="Which colour?",
    header="Colour",
    choices=(Choice(label="red", description="as blood"), Choice(label="blue")),
)
BARE = Question(text="why?", choices=(Choice(label="a"), Choice(label="b")))


MULTI = {"type": "multi_select", "choices": [{"value": "a"}, {"value": "b"}], "required": True}
SHAPES: tuple[tuple[str, dict[str, Any], Question], ...] = (
    ("AskUserQuestion", WHY, Question(text="why?")),
    ("question", {"questions": [FULL]}, PLAIN),
    (
        "AskUserQuestion",
        {"questions": [{**FULL, "multi_select": True, "required": False}]},
        replace(PLAIN, several=True, required=False),
    ),
    (
        "AskUserQuestion",
        {"questions": [{"question": "why?", "options": ["a", "b"], "multiSelect": True}]},
        replace(BARE, several=True),
    ),
    ("AskUser", {"question": "why?"}, Question(text="why?")),
    ("AskUser", {"question": "why?", "options": ["a", "b"]}, BARE),
    ("ask_user", {"questions": [{"question": "why?", "type": "text"}]}, Question(text="why?")),
    ("ask_user", {"questions": [{"question": "why?", **MULTI}]}, replace(BARE, several=True)),
    (
        "ask_user",
        {"questions": '[{"question": "why?", "type": "multiple_choice", "choices": ["a", "b"]}]'},
        BARE,
    ),
)


@pytest.mark.requirement("GR-26")
async def test_every_shape_of_a_question_is_understood(tmp_path: Path) -> None:
    for name, arguments, asked in SHAPES:
        person = Person(answers=(("a",),))
        result = await call(planner(tmp_path), name, person, **arguments)
        assert result.error is None, result.text
        assert person.questions == [asked]


SENSELESS: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "questions"),
    ({"questions": []}, "questions"),
    ({"questions": [{"question": "?"}] * 11}, "questions"),
    ({"questions": ["why?"]}, "questions.0"),
    ({"questions": "why?"}, "questions"),
    ({"questions": [{"question": ""}]}, "question"),
    ({"questions": [{"question": "?", "options": ["a", "a"]}]}, "same label"),
    ({"questions": [{"question": "?", "options": [1]}]}, "options.0"),
    ({"questions": [{"question": "?", "multi_select": True}]}, "needs options"),
    ({"questions": [{"question": "?", "type": "slider"}]}, "type"),
    ({"questions": [{"question": "?", "secret": True}]}, "secret"),
    ({"question": "?", "seconds": 5}, "seconds"),
)


async def test_what_makes_no_sense_is_named_and_nobody_is_asked(tmp_path: Path) -> None:
    person = Person(answers=())
    await refused_each(planner(tmp_path), "AskUserQuestion", SENSELESS, person)
    assert person.questions == []


async def test_what_cannot_be_seen_is_shown_to_the_human(tmp_path: Path) -> None:
    person = Person(answers=(("a\\u{202e}",),))
    options = [{"label": "a\u202e", "description": "\x1b[2K"}]
    asked = [{"question": "a\u200b?", "header": "\u200bh", "options": options}]
    result = await call(planner(tmp_path), "AskUserQuestion", person, questions=asked)
    shown = Choice(label="a\\u{202e}", description="\\u{1b}[2K")
    assert person.questions == [Question(text="a\\u{200b}?", header="\\u{200b}h", choices=(shown,))]
    assert result.text == "Q: a\\u{200b}?\nA: a\\u{202e}"


@pytest.mark.requirement("GR-27")
async def test_the_answers_come_as_text_and_as_lists(tmp_path: Path) -> None:
    answers: Answers = (("red", "blue"), ("so",), ())
    questions = [
        {**FULL, "multi_select": True},
        {"question": "why?"},
        {"question": "else?", "required": False},
    ]
    result = await call(planner(tmp_path), "AskUserQuestion", Person(answers=answers), questions=questions)
    assert result.text == "Q: Which colour?\nA: red, blue\nQ: why?\nA: so\nQ: else?\nA: (no answer)"
    assert result.data == {"answers": [["red", "blue"], ["so"], []]}


def client(folder: Path, era: str, human: Any, *, seconds: float = 10, ask: Sequence[str] = ()) -> Client:
    target = dispatcher(host(folder), ask=ask)
    served = Handlers(dispatcher=target, ask_seconds=seconds, structured=True)
    options: Any = {"mode": era, "read_timeout_seconds": 20}
    return Client(ToolServer(served, "hello"), elicitation_callback=human, **options)


TWO = {"questions": [{**FULL, "multi_select": True}, {"question": "why?"}]}


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_shows_one_form_for_all_questions(tmp_path: Path, era: str) -> None:
    human = Human({"answer_1": ["blue"], "answer_2": "so"}, {"answer_1": [], "answer_2": "again"})
    async with client(tmp_path, era, human) as connected:
        first = await connected.call_tool("AskUserQuestion", TWO)
        assert first.structured_content == {"answers": [["blue"], ["so"]]}
        assert not first.is_error
        # The same question again is a new one.
        second = await connected.call_tool("AskUserQuestion", TWO)
        assert second.structured_content == {"answers": [[], ["again"]]}
    assert len(human.saw) == 2
    assert human.saw[0].message == "1. Which colour?\n- red: as blood\n- blue\n\n2. why?"
    assert human.saw[0].requested_schema["required"] == ["answer_1", "answer_2"]


@pytest.mark.parametrize("era", ERAS)
async def test_anything_but_an_answer_is_an_error(tmp_path: Path, era: str) -> None:
    said: tuple[tuple[dict[str, Any] | mcp.ElicitResult, str], ...] = (
        (mcp.ElicitResult(action="decline"), "would not answer"),
        (mcp.ElicitResult(action="cancel"), "closed the question"),
        (mcp.ElicitResult(action="accept"), "no answer to what was asked"),
        ({"answer_1": ["green"], "answer_2": "so"}, "no answer to what"),
        ({"answer_1": [], "answer_2": "so", "mode": "x"}, "no answer to what"),
    )
    async with client(tmp_path, era, Human(*(one for one, _ in said))) as connected:
        for _, words in said:
            result = await connected.call_tool("AskUserQuestion", TWO)
            assert result.is_error
            assert words in text(result)
            assert result.structured_content is None


@pytest.mark.requirement("GR-28")
async def test_a_client_that_cannot_ask_or_fails_to_gets_the_fixed_error(tmp_path: Path) -> None:
    async def broken(*_: Any) -> mcp.ErrorData:
        return mcp.ErrorData(code=-32603, message="no screen")

    for era, human in (*((era, None) for era in ERAS), ("legacy", broken)):
        async with client(tmp_path, era, human) as connected:
            result = await connected.call_tool("AskUserQuestion", TWO)
            assert (result.is_error, text(result)) == (True, FIXED)


async def test_a_human_who_does_not_answer_in_time_is_not_waited_for(tmp_path: Path) -> None:
    async def silent(*_: Any) -> mcp.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(15):
        async with client(tmp_path, "legacy", silent, seconds=0.1) as connected:
            result = await connected.call_tool("AskUserQuestion", TWO)
            assert result.is_error
            assert "did not answer within 0.1 s" in text(result)


@pytest.mark.parametrize("era", ERAS)
async def test_an_approval_and_the_question_itself_take_one_turn_each(tmp_path: Path, era: str) -> None:
    human = Human({"decision": "allow"}, {"answer_1": "so"})
    async with client(tmp_path, era, human, ask=["AskUserQuestion"]) as connected:
        result = await connected.call_tool("AskUserQuestion", WHY)
        assert text(result) == "Q: why?\nA: so"
    assert human.saw[0].message.startswith("Allow AskUserQuestion (read-only)?\nwhy?\n")
    assert human.saw[1].message == "why?"


@pytest.mark.long
def test_nobody_reads_standard_input(tmp_path: Path) -> None:
    """What was typed early is still there for the next program."""
    (tmp_path / "root").mkdir()
    setup = Setup(root=tmp_path / "root", home=tmp_path)
    python, module, name, *flags = setup.command
    tool = [python, module, name, "call", "AskUserQuestion", '{"question": "why?"}', *flags]
    script = f'{" ".join(map(repr, tool))}; echo "status $?"; cat'
    done = subprocess.run(
        ["bash", "-c", script],
        input="typed\n",
        env=setup.environment,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == "status 1\ntyped\n"
    assert done.stderr.strip().endswith(FIXED)
    assert sys.executable == python


async def test_a_pause_goes_on_as_the_human_decides(tmp_path: Path) -> None:
    decided: tuple[tuple[Answers, str | None, str], ...] = (
        ((("continue",), ()), None, "The user lets you go on."),
        ((("continue",), ("but slowly",)), None, 'go on. They say: "but slowly"'),
        ((("stop",), ("not now",)), "denied", 'stop here. They say: "not now"'),
    )
    for answers, error, says in decided:
        person = Person(answers=answers)
        result = await call(planner(tmp_path), "pause_for_human", person, reason="Plug in the device.")
        assert (result.error, result.text.endswith(says)) == (error, True), result.text
        assert person.questions[0].text == "Plug in the device."
        assert [choice.label for choice in person.questions[0].choices] == ["continue", "stop"]
        assert not person.questions[1].required
    result = await call(planner(tmp_path), "pause_for_human", message="Look.")
    assert (result.error, result.text) == ("unavailable", FIXED)
    assert (await call(planner(tmp_path), "pause_for_human")).error == "invalid_input"


async def test_a_message_reaches_the_client_and_stays_in_the_result(tmp_path: Path) -> None:
    person = Person()
    before = datetime.now(UTC)
    result = await call(planner(tmp_path), "SendUserMessage", person, message="It is done.\nAll of it.")
    assert person.messages == ["It is done.\nAll of it."]
    sent = re.findall(
        r"^Sent to the client \(normal\) at (\S+)\. It may .*:\nIt is done.\nAll of it.$", result.text
    )[0]
    assert before - timedelta(seconds=1) <= datetime.fromisoformat(sent) <= datetime.now(UTC)
    result = await call(planner(tmp_path), "Brief", person, message="\x1b[2Kok\u202e", status="proactive")
    assert "(proactive)" in result.text
    # What cannot be seen is shown to the user too.
    assert person.messages[1:] == ["\\u{1b}[2Kok\\u{202e}"]


async def test_attached_files_are_named_with_their_size_and_lie_in_the_roots(tmp_path: Path) -> None:
    server, person = planner(tmp_path), Person()
    (tmp_path / "root/a.txt").write_text("12345", encoding="utf-8")
    (tmp_path / "root/plot.PNG").write_bytes(b"\x89PNG")
    await call(server, "SendUserMessage", person, message="see", attachments=["a.txt", "./plot.PNG"])
    shown = ["see\nAttached: a.txt (5 bytes)\nAttached: plot.PNG (picture, 4 bytes)"]
    assert person.messages == shown
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (tmp_path / "root/link").symlink_to("../secret")
    for path, kind in (
        ("../secret", "denied"),
        ("/etc/passwd", "denied"),
        ("link", "denied"),
        ("gone", "not_found"),
        (".", "invalid_input"),
        ("", "invalid_input"),
    ):
        result = await call(server, "SendUserMessage", person, message="see", attachments=["a.txt", path])
        assert result.error == kind, path
    assert person.messages == shown


async def test_a_rule_sees_every_attachment_however_it_is_spelt(tmp_path: Path) -> None:
    server = dispatcher(host(tmp_path), deny=["SendUserMessage(private/**)"])
    (tmp_path / "root/private").mkdir()
    for name in ("private/k", "a"):
        (tmp_path / "root" / name).write_text("k", encoding="utf-8")
    for spelling in ("private/k", "./private//k", f"{tmp_path}/root/private/k"):
        result = await call(server, "SendUserMessage", message="see", attachments=["a", spelling])
        assert result.error == "denied", spelling
    assert (await call(server, "SendUserMessage", message="see", attachments=["a"])).error is None


async def test_an_empty_message_is_none(tmp_path: Path) -> None:
    empty: tuple[dict[str, Any], ...] = ({}, {"message": ""}, {"message": " \n"})
    wrong = [(one, "message") for one in empty]
    await refused_each(
        planner(tmp_path), "SendUserMessage", [*wrong, ({"message": "a", "status": "b"}, "status")]
    )


@pytest.mark.requirement("CL-50")
async def test_a_client_hears_what_it_wants_to(tmp_path: Path) -> None:
    notes: list[mcp.LoggingMessageNotificationParams] = []

    async def listen(params: mcp.LoggingMessageNotificationParams) -> None:
        notes.append(params)

    served = Handlers(dispatcher=planner(tmp_path), ask_seconds=5)
    wanted: tuple[tuple[Any, mcp.LoggingLevel | None, int], ...] = (
        ("legacy", None, 1),
        ("legacy", "debug", 1),
        ("legacy", "notice", 1),
        ("legacy", "error", 0),
        # A client without a session hears nothing but of the one request that asks for it.
        ("auto", None, 0),
    )
    for era, level, heard in wanted:
        notes.clear()
        with anyio.fail_after(20):
            async with Client(ToolServer(served, "hello"), mode=era, logging_callback=listen) as client:
                if level is not None:
                    for chosen in ("emergency", level):
                        await client.session.set_logging_level(chosen)
                result = await client.call_tool("SendUserMessage", {"message": "hello"})
                assert text(result).endswith(":\nhello")
                assert text(result).startswith("Sent" if heard else "Not sent")
                for asked in ("info", "error") if era == "auto" else ():
                    meta: Any = {"io.modelcontextprotocol/logLevel": asked}
                    await client.call_tool("SendUserMessage", {"message": "hello"}, meta=meta)
        expected = 1 if era == "auto" else heard
        assert [(note.level, note.data) for note in notes] == [("notice", "hello")] * expected, (era, level)
