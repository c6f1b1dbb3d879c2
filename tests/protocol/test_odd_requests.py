"""Odd requests, sent to a real server: each gets an answer that says what is wrong."""

import json
import subprocess
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.protocol.lines import ENVELOPE, READY, opening
from tests.support import live
from tests.support.http_server import ACCEPT, INITIALIZE, call, modern, serving, sse_session
from tests.support.live import TOKEN, Setup

IDS = {"float": 1.5, "whole-float": 1.0, "null": None, "boolean": True, "object": {"a": 1}, "list": [1]}
AUTHORIZED = {**ACCEPT, "authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """One server over HTTP that has room for a single request."""
    setup = Setup.below(tmp_path_factory.mktemp("odd"), "read-only", "--max-calls", "1")
    with live.serving(setup, "http") as address:
        yield address


def said_on_stdio(setup: Setup, *messages: Mapping[str, Any], files: bool = False) -> list[dict[str, Any]]:
    """What a server answers to these lines, over pipes or over files."""
    source, target = setup.home / "requests", setup.home / "answers"
    source.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    with source.open("rb") as given, target.open("wb") as taken:
        if files:
            streams: dict[str, Any] = {"stdin": given, "stdout": taken}
        else:
            streams = {"input": given.read(), "stdout": subprocess.PIPE}
        done = subprocess.run(setup.command, env=setup.environment, timeout=30, check=True, **streams)
    answers = target.read_bytes() if files else done.stdout
    return [json.loads(line) for line in answers.splitlines()]


def listing(era: str, request_id: object) -> dict[str, Any]:
    params = ENVELOPE if era == "auto" else {}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/list", "params": params}


both_streams = pytest.mark.parametrize("files", [False, True], ids=["pipes", "files"])


@both_streams
def test_odd_requests_before_and_after_the_handshake_get_errors_that_name_them(
    files: bool, setup: Setup
) -> None:
    early = [listing("legacy", 1), {**listing("legacy", 2), "method": "nothing/such"}]
    odd = [listing("legacy", value) for value in IDS.values()]
    late = [listing("auto", 7), listing("legacy", "last")]
    answers = said_on_stdio(setup, *early, *opening("legacy"), *odd, *late, files=files)
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id.keys() == {0, 1, 2, 7, "last", None}
    assert by_id[1]["error"]["code"] == -32600
    assert "initialize" in by_id[1]["error"]["message"]
    assert by_id[2]["error"]["code"] == -32601
    assert "result" in by_id[0]
    assert [answer["error"]["code"] for answer in answers if answer["id"] is None] == [-32600] * len(IDS)
    # After a handshake, a request without one is refused.
    assert by_id[7]["error"]["code"] == -32600
    assert by_id["last"]["result"]["tools"]


def test_an_id_of_the_wrong_type_is_refused_without_a_handshake(setup: Setup) -> None:
    odd = [listing("auto", value) for value in IDS.values()]
    answers = said_on_stdio(setup, *opening("auto"), *odd, listing("auto", "last"))
    refused = [answer["error"]["code"] for answer in answers if answer["id"] is None]
    assert refused == [-32600] * len(IDS)
    assert {answer["id"] for answer in answers} == {0, "last", None}


@pytest.mark.parametrize("era", live.ERAS)
def test_an_id_of_the_wrong_type_is_refused_over_http(era: str, url: str) -> None:
    message, headers = modern("current_datetime") if era == "auto" else (call("current_datetime"), ACCEPT)
    with httpx.Client(timeout=10, trust_env=False, headers=AUTHORIZED) as http:
        if era == "legacy":
            session = http.post(url, json=INITIALIZE).headers["mcp-session-id"]
            headers = {**headers, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        for name, value in IDS.items():
            answer = http.post(url, json={**message, "id": value}, headers=headers)
            error = answer.json()
            assert (answer.status_code, error["id"], error["error"]["code"]) == (400, None, -32600), name


async def test_an_id_of_the_wrong_type_is_refused_over_sse() -> None:
    async with serving(sse=True) as server, server.http() as http, sse_session(http) as session:
        for name, value in IDS.items():
            answer = await http.post(session.url, json=listing("legacy", value))
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600), name


def test_a_stream_that_is_resumed_begins_anew_and_a_request_needs_a_session(url: str) -> None:
    with httpx.Client(timeout=10, trust_env=False, headers=AUTHORIZED) as http:
        answer = http.post(url, json=listing("legacy", 1))
        assert answer.status_code == 400
        assert "session" in answer.json()["error"]["message"].lower()
        session = {"mcp-session-id": http.post(url, json=INITIALIZE).headers["mcp-session-id"]}
        http.post(url, json=READY, headers=session)
        resumed = {**session, "accept": "text/event-stream", "last-event-id": "7"}
        with http.stream("GET", url, headers=resumed) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("era", live.ERAS)
async def test_a_ping_does_not_count_against_the_calls_in_progress(era: str, url: str) -> None:
    async with httpx.AsyncClient(timeout=10, trust_env=False, headers=AUTHORIZED) as http:
        headers: dict[str, str] = {}
        long, extra = modern("Sleep")
        ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
        if era == "legacy":
            long, extra = call("Sleep"), {}
            headers["mcp-session-id"] = (await http.post(url, json=INITIALIZE)).headers["mcp-session-id"]
            await http.post(url, json=READY, headers=headers)
        else:
            ping["params"] = ENVELOPE
            headers.update({"mcp-protocol-version": "2026-07-28", "mcp-method": "ping"})
        long["params"]["arguments"] = {"duration_ms": 60_000}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_ignoring_the_answer, http, url, long, {**headers, **extra})
            with anyio.fail_after(20):
                while (await http.post(url, json=listing("legacy", 3), headers=headers)).status_code != 503:
                    await anyio.sleep(0.01)
                answer = await http.post(url, json=ping, headers=headers)
                # Since 2026-07-28 there is no ping; it must not be turned away for want of room.
                assert answer.status_code == (200 if era == "legacy" else 404)
            tasks.cancel_scope.cancel()


async def _ignoring_the_answer(
    http: httpx.AsyncClient, url: str, message: Mapping[str, Any], headers: Mapping[str, str]
) -> None:
    # The only place may just be taken by a request that looks whether it is.
    while (await http.post(url, json=message, headers=dict(headers), timeout=60)).status_code == 503:
        await anyio.sleep(0.01)


@both_streams
def test_a_ping_is_answered_on_stdio_while_there_is_no_room(files: bool, tmp_path: Path) -> None:
    full = Setup.below(tmp_path, "read-only", "--max-calls", "1")
    sleeping = {**call("Sleep", 1), "params": {"name": "Sleep", "arguments": {"duration_ms": 500}}}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answers = said_on_stdio(full, INITIALIZE, READY, sleeping, ping, listing("legacy", 3), files=files)
    found = {answer["id"]: answer for answer in answers}
    assert found[2]["result"] == {}
    assert found[3]["error"]["code"] == -32603
    assert "result" in found[1]
