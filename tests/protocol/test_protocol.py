"""The protocol layer by itself: questions, client roots, progress."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from mcp_toolserver.protocol import elicitation
from mcp_toolserver.protocol.elicitation import Questions, Said
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from tests.support.live import text
from tests.support.workbench import Args, Output, Runtime, dispatcher, machine, tool

YES = mcp.ElicitResult(action="accept", content={"decision": "allow"})
NO = mcp.ElicitResult(action="decline")


async def talk(_: Args, rt: Runtime) -> Output:
    for step in ("one", "two"):
        await rt.report(step)
    return Output("said")


def handlers(folder: Path, ask: Sequence[str] = ()) -> Handlers:
    target = dispatcher(machine(folder), tool(talk), ask=ask)
    return Handlers(dispatcher=target, ask_seconds=5)


def client(served: Handlers, **options: Any) -> Client:
    return Client(ToolServer(served, ""), **{"mode": "legacy", "read_timeout_seconds": 10, **options})


def request(question: str) -> mcp.ElicitRequest:
    return mcp.ElicitRequest(
        params=mcp.ElicitRequestFormParams(message=question, requested_schema={"type": "object"})
    )


def asked(questions: Questions, question: str, earlier: Said | None = None) -> str:
    return questions.ask(elicitation.APPROVAL, request(question), earlier or {}).request_state or ""


def said(questions: Questions, question: str, state: str | None, *answers: mcp.ElicitResult) -> object:
    """The answer to `question`, None for no word, "" where it was not asked."""
    responses = dict.fromkeys([elicitation.APPROVAL], answers[0]) if answers else {}
    return questions.answered(state, responses).get(elicitation.digest(request(question)), "")


def test_an_answer_counts_once() -> None:
    questions = Questions()
    state = asked(questions, "may I?")
    assert said(questions, "may I?", state, YES) == YES
    assert said(questions, "may I?", state, YES) == ""


def test_what_was_answered_before_comes_along() -> None:
    questions = Questions()
    before = questions.answered(asked(questions, "may I?"), {elicitation.APPROVAL: YES})
    assert said(questions, "may I?", asked(questions, "and what?", before), NO) == YES
    assert said(questions, "and what?", asked(questions, "and what?", before), NO) == NO


def test_what_is_no_answer_or_comes_too_late_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    assert said(questions, "may I?", asked(questions, "may I?")) is None
    for state in (None, "", "0" * 32, "made up", asked(questions, "may I write a?")):
        assert said(questions, "may I?", state, YES) == ""
    # Only so many are remembered, and not for ever.
    states = [asked(questions, "may I?") for _ in range(2000)]
    assert said(questions, "may I?", states[0], YES) == ""
    assert said(questions, "may I?", states[-1], YES) == YES
    monkeypatch.setattr(elicitation, "STATE_SECONDS", -1.0)
    assert said(questions, "may I?", asked(questions, "may I?"), YES) == ""


async def test_a_tampered_state_is_refused(tmp_path: Path) -> None:
    async def human(_: Any, __: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        return YES

    async with client(handlers(tmp_path, ["probe"]), mode="auto", elicitation_callback=human) as connected:

        async def call(state: str | None, **arguments: Any) -> Any:
            answers: mcp.InputResponses | None = {elicitation.APPROVAL: YES} if state else None
            return await connected.session.call_tool(
                "probe",
                arguments,
                input_responses=answers,
                request_state=state,
                allow_input_required=True,
            )

        first = await call(None)
        assert isinstance(first, mcp.InputRequiredResult)
        state = first.request_state or ""
        with pytest.raises(MCPError, match="requestState"):
            # STATE02: sealed for one call, sent with another.
            await call(state, other=1)
        # STATE01, STATE06, and one that was cut.
        for tampered in (state.swapcase(), "x" * 40, state[:-4]):
            with pytest.raises(MCPError) as failure:
                await call(tampered)
            assert failure.value.error.code == mcp.INVALID_PARAMS
        assert text(await call(state)) == "said"
        assert isinstance(await call(state), mcp.InputRequiredResult)


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


async def test_only_a_client_with_a_handshake_is_asked_for_roots_once_and_again_when_they_change(
    tmp_path: Path,
) -> None:
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
    async with client(handlers(tmp_path), mode="auto", list_roots_callback=roots) as connected:
        await connected.call_tool("probe", {})
    assert calls == 2


ELSEWHERE = (
    "https://example.com/a",
    "file://elsewhere/a",
    "file://[/a",
    "file:a",
    "file:///a%00b",
    "file:///a%FF",
    "file:///#a",
    "file:///?a",
    "file:///nowhere",
)
"""Roots that are no folder in the root of the server: of another machine, no path, elsewhere."""

Answer = mcp.ListRootsResult | mcp.ErrorData


class Listed(mcp.ListRootsResult):
    """A list that may hold anything."""

    roots: Any


async def test_an_empty_or_failed_answer_narrows_only_what_a_list_has_narrowed(tmp_path: Path) -> None:
    served = with_files(tmp_path)
    error = mcp.ErrorData(code=-32601, message="Method not found")
    wrong: Mapping[str, Answer] = {"empty": named(), "error": error, "no list": Listed(roots=7)}
    for name, answer in wrong.items():
        answers = [answer, named(tmp_path / "root/a"), answer]

        async def roots(_: Any, answers: list[Answer] = answers) -> Answer:
            return answers.pop(0)

        async with client(served, list_roots_callback=roots) as connected:
            assert await read(connected, "b/f") == "b", name
            for expected in ("a", "--client-roots ignore" if name == "empty" else "a"):
                await connected.session.send_roots_list_changed()
                assert expected in await read(connected, "f"), name
            assert await read(connected, str(tmp_path / "root/b/f")) != "b", name


async def test_a_list_of_other_places_narrows_to_nothing(tmp_path: Path) -> None:
    served = with_files(tmp_path)
    for uri in ELSEWHERE:

        async def roots(_: Any, uri: object = uri) -> Answer:
            return Listed(roots=[{"uri": uri}])

        async with client(served, list_roots_callback=roots) as connected:
            assert "--client-roots ignore" in await read(connected, "a/f"), uri


async def test_a_client_that_answers_too_late_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.protocol.client_identity._SECONDS", 0.05)
    asked = 0

    async def roots(_: Any) -> mcp.ListRootsResult:
        nonlocal asked
        asked += 1
        if asked <= 3:
            await anyio.sleep_forever()
        return named(tmp_path / "root/a")

    async with client(with_files(tmp_path), list_roots_callback=roots) as connected:
        assert [await read(connected, "b/f") for _ in range(5)] == ["b"] * 5
        assert asked == 3
        monkeypatch.setattr("mcp_toolserver.protocol.client_identity._SECONDS", 5.0)
        await connected.session.send_roots_list_changed()
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


async def test_progress_is_reported_under_a_token_of_bounded_length(tmp_path: Path) -> None:
    notes: list[mcp.ProgressNotification] = []

    async def listen(message: Any) -> None:
        if isinstance(message, mcp.ProgressNotification):
            notes.append(message)

    async with client(handlers(tmp_path), message_handler=listen) as connected:
        # JSON15: a longer one is ignored.
        for token in ("t" * 256, 7, "t" * 257):
            await connected.session.call_tool("probe", {}, meta={"progress_token": token})
    found = [(note.params.progress_token, note.params.progress) for note in notes]
    assert found == [(token, step) for token in ("t" * 256, 7) for step in (1.0, 2.0)]
