"""The protocol layer by itself: questions, client roots, resources, progress."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import NotFound
from mcp_toolserver.protocol.build_server import build
from mcp_toolserver.protocol.elicitation import elicit
from mcp_toolserver.protocol.elicitation.elicit import Questions, Said
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.instructions import EnforcementStatus, instructions
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from tests.support.live import text
from tests.support.workbench import Args, Output, Runtime, dispatcher, machine, tool

YES = mcp.ElicitResult(action="accept", content={"decision": "allow"})
NO = mcp.ElicitResult(action="decline")


class OneOutput:
    """Holds one long result."""

    async def read(self, handle: str, owner: str, limit: int) -> bytes:
        if handle != "known":
            raise NotFound("no such handle")
        return b"whole \xff" * (limit > 0)


async def talk(_: Args, rt: Runtime) -> Output:
    for step in ("one", "two"):
        await rt.report(step)
    return Output("said")


def handlers(folder: Path, ask: Sequence[str] = ()) -> Handlers:
    target = dispatcher(machine(folder), tool(talk), ask=ask)
    return Handlers(dispatcher=target, ask_seconds=5)


def client(served: Handlers, **options: Any) -> Client:
    feature = ResourceFeature(handlers=served, outputs=OneOutput(), security="all of it")
    return Client(
        build(served, "hello", [feature]), **{"mode": "legacy", "read_timeout_seconds": 10, **options}
    )


# --- questions -------------------------------------------------------------------------------------------


def request(question: str) -> mcp.ElicitRequest:
    return mcp.ElicitRequest(
        params=mcp.ElicitRequestFormParams(message=question, requested_schema={"type": "object"})
    )


def asked(questions: Questions, question: str, earlier: Said | None = None) -> str:
    state = questions.ask(elicit.APPROVAL, request(question), earlier or {}).request_state
    assert state is not None
    return state


def said(questions: Questions, question: str, state: str | None, *answers: mcp.ElicitResult) -> object:
    """The answer to `question`, None for no word, "" where it was not asked."""
    responses = dict.fromkeys([elicit.APPROVAL], answers[0]) if answers else {}
    return questions.answered(state, responses).get(elicit.digest(request(question)), "")


def test_an_answer_counts_once() -> None:
    questions = Questions()
    state = asked(questions, "may I?")
    assert said(questions, "may I?", state, YES) == YES
    assert said(questions, "may I?", state, YES) == ""


def test_an_answer_to_another_question_does_not_count() -> None:
    questions = Questions()
    assert said(questions, "may I write b?", asked(questions, "may I write a?"), YES) == ""


def test_what_was_answered_before_comes_along() -> None:
    questions = Questions()
    before = questions.answered(asked(questions, "may I?"), {elicit.APPROVAL: YES})
    assert said(questions, "may I?", asked(questions, "and what?", before), NO) == YES
    assert said(questions, "and what?", asked(questions, "and what?", before), NO) == NO


@pytest.mark.parametrize("state", [None, "", "0" * 32, "made up"])
def test_a_state_that_was_never_given_does_not_count(state: str | None) -> None:
    questions = Questions()
    asked(questions, "may I?")
    assert said(questions, "may I?", state, YES) == ""


def test_a_missing_answer_is_no_word() -> None:
    questions = Questions()
    assert said(questions, "may I?", asked(questions, "may I?")) is None


def test_an_answer_that_comes_too_late_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    monkeypatch.setattr(elicit, "STATE_SECONDS", -1.0)
    assert said(questions, "may I?", asked(questions, "may I?"), YES) == ""


def test_only_so_many_questions_are_remembered() -> None:
    questions = Questions()
    states = [asked(questions, "may I?") for _ in range(2000)]
    assert said(questions, "may I?", states[0], YES) == ""
    assert said(questions, "may I?", states[-1], YES) == YES


@pytest.mark.parametrize(
    "tamper", [str.swapcase, lambda _: "x" * 40, lambda state: state[:-4]], ids=["STATE01", "STATE06", "cut"]
)
async def test_a_tampered_state_is_refused(tamper: Any, tmp_path: Path) -> None:
    human_saw: list[str] = []

    async def human(_: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        human_saw.append(params.message)
        return YES

    async with client(handlers(tmp_path, ["probe"]), mode="auto", elicitation_callback=human) as connected:
        first = await connected.session.call_tool("probe", {}, allow_input_required=True)
        assert isinstance(first, mcp.InputRequiredResult)
        assert first.request_state is not None
        answers: mcp.InputResponses = {elicit.APPROVAL: YES}
        with pytest.raises(MCPError, match="requestState"):
            # STATE02: sealed for one call, sent with another.
            await connected.session.call_tool(
                "probe",
                {"other": 1},
                input_responses=answers,
                request_state=first.request_state,
                allow_input_required=True,
            )
        with pytest.raises(MCPError) as failure:
            await connected.session.call_tool(
                "probe",
                {},
                input_responses=answers,
                request_state=tamper(first.request_state),
                allow_input_required=True,
            )
        assert failure.value.error.code == mcp.INVALID_PARAMS
        again = await connected.session.call_tool(
            "probe", {}, input_responses=answers, request_state=first.request_state, allow_input_required=True
        )
        assert isinstance(again, mcp.CallToolResult)
        assert text(again) == "said"
        replayed = await connected.session.call_tool(
            "probe", {}, input_responses=answers, request_state=first.request_state, allow_input_required=True
        )
        assert isinstance(replayed, mcp.InputRequiredResult)


# --- roots -----------------------------------------------------------------------------------------------


def named(*folders: Path) -> mcp.ListRootsResult:
    return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(folder.as_uri())) for folder in folders])


def with_files(folder: Path) -> Handlers:
    """A server of all tools on `folder/root`, which holds the folders `a` and `b` with a file `f` each."""
    served = Handlers(dispatcher=dispatcher(machine(folder)), ask_seconds=5)
    for name in "ab":
        (folder / "root" / name).mkdir()
        (folder / "root" / name / "f").write_text(name, encoding="utf-8")
    return served


async def read(connected: Client, path: str) -> str:
    return text(await connected.call_tool("read_file", {"path": path})).removeprefix("1\t")


async def test_a_client_is_asked_for_its_roots_once_and_again_when_they_change(tmp_path: Path) -> None:
    calls = 0

    async def roots(_: Any) -> mcp.ListRootsResult:
        nonlocal calls
        calls += 1
        return named(tmp_path / "root")

    async with client(handlers(tmp_path), list_roots_callback=roots) as connected:
        await connected.session.send_roots_list_changed()
        for _ in range(3):
            assert text(await connected.call_tool("probe", {})) == "said"
        assert calls == 1
        await connected.session.send_roots_list_changed()
        await connected.call_tool("probe", {})
        assert calls == 2


NO_FOLDERS = [
    pytest.param([], id="none"),
    pytest.param(["https://example.com/a"], id="no-file"),
    pytest.param(["file://elsewhere/a"], id="of-another-machine"),
    pytest.param(["file:///a%00b"], id="NUL"),
    pytest.param(["file:///a%FF"], id="no-text"),
    pytest.param(["file:///#a"], id="fragment"),
    pytest.param(["file:///?a"], id="query"),
    pytest.param([7], id="no-address"),
]


@pytest.mark.parametrize("uris", NO_FOLDERS)
async def test_a_client_that_names_no_folder_has_none_until_it_does(uris: list[Any], tmp_path: Path) -> None:
    answers = [
        mcp.ListRootsResult.model_construct(roots=[mcp.Root.model_construct(uri=uri) for uri in uris]),
        named(tmp_path / "root/a"),
    ]

    async def roots(_: Any) -> mcp.ListRootsResult:
        return answers.pop(0)

    async with client(with_files(tmp_path), list_roots_callback=roots) as connected:
        refused = await connected.call_tool("read_file", {"path": str(tmp_path / "root/a/f")})
        assert refused.is_error
        assert "the client declares roots" in text(refused)
        assert await read(connected, "f") == "a"
        assert answers == []


async def test_a_client_that_answers_with_an_error_has_no_roots_until_it_names_them(tmp_path: Path) -> None:
    answers = [mcp.ErrorData(code=-32603, message="no roots today"), named(tmp_path / "root/a")]

    async def roots(_: Any) -> mcp.ListRootsResult | mcp.ErrorData:
        return answers.pop(0)

    async with client(with_files(tmp_path), list_roots_callback=roots) as connected:
        assert "roots/list was an error" in await read(connected, "a/f")
        assert await read(connected, "f") == "a"


async def test_a_client_that_answers_too_late_has_no_roots_until_it_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.protocol.client_roots._SECONDS", 0.05)
    asked = 0

    async def roots(_: Any) -> mcp.ListRootsResult:
        nonlocal asked
        asked += 1
        if asked == 1:
            await anyio.sleep_forever()
        return named(tmp_path / "root/a")

    async with client(with_files(tmp_path), list_roots_callback=roots) as connected:
        assert "did not answer roots/list" in await read(connected, "a/f")
        monkeypatch.setattr("mcp_toolserver.protocol.client_roots._SECONDS", 5.0)
        assert await read(connected, "f") == "a"


async def test_roots_that_change_while_they_are_asked_for_are_asked_for_again(tmp_path: Path) -> None:
    answers = [named(tmp_path / "root/a"), named(tmp_path / "root/b")]

    async def roots(_: Any) -> mcp.ListRootsResult:
        if len(answers) > 1:
            await connected.session.send_roots_list_changed()
            # The server has seen the notice when it answers this.
            await connected.send_ping()
        return answers.pop(0)

    async with client(with_files(tmp_path), list_roots_callback=roots) as connected:
        assert [await read(connected, "f") for _ in range(2)] == ["b", "b"]
        assert answers == []


async def test_a_modern_client_is_not_asked_for_roots(tmp_path: Path) -> None:
    async def roots(_: Any) -> mcp.ListRootsResult:
        raise AssertionError

    async with client(handlers(tmp_path), mode="auto", list_roots_callback=roots) as connected:
        assert text(await connected.call_tool("probe", {})) == "said"


# --- resources and progress ------------------------------------------------------------------------------


async def test_a_long_result_is_a_resource_as_text(tmp_path: Path) -> None:
    async with client(handlers(tmp_path)) as connected:
        content = (await connected.read_resource("toolserver://output/known")).contents[0]
        assert isinstance(content, mcp.TextResourceContents)
        assert content.text == "whole �"


async def test_what_is_enforced_is_a_resource(tmp_path: Path) -> None:
    async with client(handlers(tmp_path)) as connected:
        content = (await connected.read_resource("toolserver://security")).contents[0]
        assert isinstance(content, mcp.TextResourceContents)
        assert content.text == "all of it"


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param("file://{}/%2e%2e/%2e%2e/etc/passwd", id="URI03"),
        pytest.param("file://{}/%252e%252e/x", id="URI04"),
        pytest.param("file://evilhost/share/x", id="URI05"),
        pytest.param("FILE:///etc/passwd", id="URI06"),
        pytest.param("file://{}/a%00b", id="URI07"),
        pytest.param("git+file://{}/a", id="URI08"),
        pytest.param("file://{}/a?../../x", id="URI11"),
        pytest.param("TOOLSERVER://security", id="our scheme in capitals"),
        pytest.param("toolserver://security/../output/known", id="a way round"),
    ],
)
async def test_no_other_address_is_a_resource(uri: str, tmp_path: Path) -> None:
    served = Handlers(dispatcher=dispatcher(machine(tmp_path)), ask_seconds=5)
    async with client(served) as connected:
        (tmp_path / "root/a").write_text("a", encoding="utf-8")
        assert (await connected.read_resource(f"file://{tmp_path}/root/a")).contents
        with pytest.raises(MCPError, match="not found"):
            await connected.read_resource(uri.format(tmp_path / "root"))


@pytest.mark.parametrize(
    ("token", "heard"),
    [
        pytest.param("t" * 256, 2, id="short"),
        pytest.param(7, 2, id="number"),
        pytest.param("t" * 257, 0, id="JSON15"),
    ],
)
async def test_progress_is_reported_under_a_token_of_bounded_length(
    token: str | int, heard: int, tmp_path: Path
) -> None:
    notes: list[mcp.ProgressNotification] = []

    async def listen(message: Any) -> None:
        if isinstance(message, mcp.ProgressNotification):
            notes.append(message)

    async with client(handlers(tmp_path), message_handler=listen) as connected:
        await connected.session.call_tool("probe", {}, meta={"progress_token": token})
    assert [note.params.progress_token for note in notes] == [token] * heard
    assert [note.params.progress for note in notes] == [1.0, 2.0][:heard]


# --- guidance --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Permission)
def test_the_instructions_fit_whatever_the_roots(mode: Permission) -> None:
    status = EnforcementStatus(mode=mode, commands=True, network=True, summary="by the kernel")
    said = instructions(status, [f"/{'x' * 200}/{number}" for number in range(20)])
    assert len(said) <= 1500
    assert mode.flag in said
    assert "12 more" in instructions(status, [f"/r{number}" for number in range(20)])


# --- the server itself -----------------------------------------------------------------------------------


def test_the_schema_of_one_tool_is_found_without_a_list(tmp_path: Path) -> None:
    served = handlers(tmp_path)
    assert served.schema("probe") == {"type": "object", "properties": {}, "additionalProperties": False}
    assert served.schema("nope") is None
