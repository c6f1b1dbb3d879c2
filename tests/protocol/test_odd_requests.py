"""Odd requests, most sent to a real server: each gets an answer that says what is wrong."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.protocol.rate_limit import RequestLimits
from tests.protocol.lines import ENVELOPE, READY, opening, spoken
from tests.support.http_server import (
    ACCEPT,
    INITIALIZE,
    call,
    modern,
    open_session,
    serving,
    sse_session,
)
from tests.support.live import ERAS, Setup

IDS = {"float": 1.5, "whole-float": 1.0, "null": None, "boolean": True, "object": {"a": 1}, "list": [1]}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path)


def said_on_stdio(setup: Setup, *messages: Mapping[str, Any], files: bool = False) -> list[dict[str, Any]]:
    """What a server answers to these lines, over pipes or over files."""
    return [json.loads(line) for line in spoken(setup, *messages, files=files)]


def listing(era: str, request_id: object) -> dict[str, Any]:
    params = ENVELOPE if era == "auto" else {}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/list", "params": params}


def test_odd_requests_before_and_after_the_handshake_get_errors_that_name_them(setup: Setup) -> None:
    # The first opens in neither way.
    early = [
        {"jsonrpc": "2.0", "id": 8, "method": "ping"},
        listing("legacy", 1),
        {**listing("legacy", 2), "method": "nothing/such"},
    ]
    early.append({**INITIALIZE, "id": 3, "params": {}})
    odd = [listing("legacy", value) for value in IDS.values()]
    late = [listing("auto", 7), listing("legacy", "last")]
    answers = said_on_stdio(setup, *early, *opening("legacy"), *odd, *late, files=True)
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id.keys() == {0, 1, 2, 3, 7, 8, "last", None}
    assert by_id[1]["error"]["code"] == -32600
    assert "initialize" in by_id[1]["error"]["message"]
    assert [by_id[number]["error"]["code"] for number in (2, 3)] == [-32601, -32602]
    assert by_id[8]["result"] == {}
    assert "result" in by_id[0]
    assert [answer["error"]["code"] for answer in answers if answer["id"] is None] == [-32600] * len(IDS)
    # After a handshake, a request without one is refused.
    assert by_id[7]["error"]["code"] == -32600
    assert by_id["last"]["result"]["tools"]


@pytest.mark.parametrize("era", ERAS)
async def test_an_id_of_the_wrong_type_is_refused_over_http(era: str) -> None:
    async with serving() as server, server.http() as http:
        message, headers = modern("echo") if era == "auto" else (call("echo"), await open_session(http))
        for name, value in IDS.items():
            answer = await http.post("/mcp", json={**message, "id": value}, headers=headers)
            error = answer.json()
            assert (answer.status_code, error["id"], error["error"]["code"]) == (400, None, -32600), name


async def test_an_id_of_the_wrong_type_is_refused_over_sse() -> None:
    async with serving(sse=True) as server, server.http() as http, sse_session(http) as session:
        for name, value in IDS.items():
            answer = await http.post(session.url, json=listing("legacy", value))
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600), name


async def test_a_stream_that_is_resumed_begins_anew_and_a_request_needs_a_session() -> None:
    async with serving() as server, server.http() as http:
        answer = await http.post("/mcp", json=listing("legacy", 1), headers=ACCEPT)
        assert answer.status_code == 400
        assert "session" in answer.json()["error"]["message"].lower()
        resumed = {**await open_session(http), "accept": "text/event-stream", "last-event-id": "7"}
        async with http.stream("GET", "/mcp", headers=resumed) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("era", ERAS)
async def test_a_ping_does_not_count_against_the_calls_in_progress(era: str) -> None:
    ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    async with (
        serving(limits=RequestLimits(requests=1)) as server,
        server.http() as http,
        anyio.create_task_group() as tasks,
    ):
        long, headers = modern("wait") if era == "auto" else (call("wait"), await open_session(http))
        pinging = dict(headers)
        if era == "auto":
            ping["params"], pinging["mcp-method"] = ENVELOPE, "ping"
            del pinging["mcp-name"]
        tasks.start_soon(lambda: http.post("/mcp", json=long, headers=headers))
        await server.calls.until(running=1)
        assert (await http.post("/mcp", json=long, headers=headers)).status_code == 503
        answer = await http.post("/mcp", json=ping, headers=pinging)
        # Since 2026-07-28 there is no ping; it must not be turned away for want of room.
        assert answer.status_code == (200 if era == "legacy" else 404)
        server.calls.release.set()


def test_a_flood_of_calls_on_stdio_is_refused_and_a_ping_is_answered(tmp_path: Path) -> None:
    full = Setup.below(tmp_path, "read-only", "--max-calls", "1")
    sleeping = {**call("Sleep", 1), "params": {"name": "Sleep", "arguments": {"duration_ms": 500}}}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    flood = [{**sleeping, "id": number} for number in range(3, 100)]
    answers = said_on_stdio(full, INITIALIZE, READY, sleeping, ping, *flood)
    found = {answer["id"]: answer for answer in answers}
    assert found[2]["result"] == {}
    assert {found[number]["error"]["code"] for number in range(3, 100)} == {-32603}
    assert "result" in found[1]
