"""Serving over HTTP: the official client in both eras, what happens when somebody leaves, the bounds, what
clients may ask in a minute, and the names under which the server is reached.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import httpx
import pytest
from mcp_types import CLIENT_INFO_META_KEY
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http.endpoints import cancels_when_left
from mcp_toolserver.protocol.http.gate import LARGE_BODIES, POSTED, Gateway, HttpOptions, Posted
from mcp_toolserver.protocol.http.members import Member, OneToken
from mcp_toolserver.protocol.http.request_checks import (
    INVALID_TOKEN,
    RequestHead,
    Route,
    Rules,
    bearer_token,
    check_request,
)
from mcp_toolserver.protocol.http.server import check_bind, listen, listening, own_hosts, port_of
from mcp_toolserver.protocol.http.tokens import make_token, read_token_file
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, RateLimiter, RequestLimits
from tests.support.http_server import (
    ACCEPT,
    INITIALIZE,
    TOKEN,
    Calls,
    Running,
    body_of,
    call,
    modern,
    open_session,
    read_all,
    serving,
    sse_session,
    status_of,
)

ERAS = ("legacy", "modern")


# --- ordinary clients ------------------------------------------------------------------------------------


async def test_a_name_is_served_on_all_its_addresses() -> None:
    async with serving(host="localhost") as server:
        for *_, address in socket.getaddrinfo("localhost", server.port, type=socket.SOCK_STREAM):
            reader, writer = await asyncio.open_connection(str(address[0]), server.port)
            writer.write(server.head("GET", "/healthz", Host=f"localhost:{server.port}", Connection="close"))
            assert status_of(await read_all(reader)) == 200
            writer.close()


async def test_health_needs_no_token_and_tells_nothing() -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.base, trust_env=False) as http:
        assert server.url == f"http://127.0.0.1:{server.port}/mcp"
        answer = await http.get("/healthz")
        assert (answer.status_code, answer.text) == (200, "ok")
        assert (await http.head("/healthz")).status_code == 200
        assert (await http.get("/readyz")).text == "ready"
        assert (await http.post("/healthz")).status_code == 405


async def test_every_response_forbids_caching_and_guessing_and_allows_no_other_origin() -> None:
    async with serving() as server, server.http() as http:
        session = await open_session(http)
        answers = [
            await http.get("/healthz"),
            await http.get("/nothing"),
            await http.options("/mcp"),
            await http.post("/mcp", json=call("echo"), headers=session),
            await http.post("/mcp", content=b"nonsense"),
            await http.post("/mcp", json={}, headers={"authorization": "Bearer wrong"}),
        ]
        lines = (await server.raw(b"nonsense\r\n\r\n")).decode().split("\r\n\r\n")[0].split("\r\n")[1:]
        raw = httpx.Headers(dict(line.split(": ") for line in lines))
        for headers in [*(answer.headers for answer in answers), raw]:
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers
            assert not [name for name in headers if name.startswith("access-control")]


async def test_a_refusal_is_a_json_rpc_error_that_says_what_to_do() -> None:
    async with serving() as server, server.http(authorization="Basic secret") as http:
        answer = await http.post("/mcp", json=INITIALIZE)
        assert answer.json()["error"]["message"].startswith("Send the server's token")
        assert "secret" not in answer.text


# --- leaving ---------------------------------------------------------------------------------------------


async def _calling(server: Running, http: httpx.AsyncClient, era: str) -> asyncio.StreamWriter:
    """A connection of its own with a call of `wait` in progress."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    if era == "legacy":
        message, headers = call("wait", "left"), await open_session(http)
    else:
        message, headers = modern("wait")
    writer.write(server.head(**headers, Content_Length=str(len(body_of(message)))) + body_of(message))
    await server.calls.until(running=1)
    return writer


LEAVING: Mapping[str, Callable[[asyncio.StreamWriter], None]] = {
    "closes the connection": lambda writer: writer.close(),
    "closes only its own direction": lambda writer: writer.write_eof(),
    "vanishes": lambda writer: writer.transport.abort(),
}


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_is_cancelled_when_its_client_leaves(era: str) -> None:
    async with serving() as server, server.http() as http:
        for number, leave in enumerate(LEAVING.values()):
            writer = await _calling(server, http, era)
            assert server.calls.cancelled == number
            leave(writer)
            await server.calls.until(running=0, cancelled=number + 1)
            writer.close()


async def test_only_the_call_of_the_closed_connection_is_cancelled_and_its_session_goes_on() -> None:
    async with serving() as server, server.http() as http:
        session = await open_session(http)
        answers: list[httpx.Response] = []
        async with anyio.create_task_group() as group:

            async def stay() -> None:
                answers.append(await http.post("/mcp", json=call("wait", 7, text="kept"), headers=session))

            group.start_soon(stay)
            await server.calls.until(running=1)
            async with server.http() as other:
                leaving = asyncio.create_task(other.post("/mcp", json=call("wait", 8), headers=session))
                await server.calls.until(running=2)
                leaving.cancel()
            await server.calls.until(running=1, cancelled=1)
            again = await http.post("/mcp", json=call("echo", 8, text="again"), headers=session)
            assert "again" in again.text
            server.calls.release.set()
        assert "kept" in answers[0].text
        assert server.calls.cancelled == 1


async def test_a_left_call_is_cancelled_even_when_its_response_is_ended_in_order() -> None:
    requests: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        requests.append((await receive())["body"])
        if len(requests) == 1:
            assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})

    async def receive() -> Message:
        return {"type": "http.disconnect"} if requests else {"type": "http.request", "body": b"the call"}

    async def send(message: Message) -> None: ...

    scope = {
        "headers": [(b"mcp-session-id", b"x"), (b"content-length", b"8")],
        POSTED: Posted(method="m", id="a"),
    }
    await cancels_when_left(app)(scope, receive, send)
    assert json.loads(requests[1])["params"]["requestId"] == "a"


async def test_closing_the_sse_stream_cancels_its_calls_and_gives_their_places_back() -> None:
    async with serving(sse=True, limits=RequestLimits(requests=2)) as server, server.http() as http:
        async with sse_session(http) as session:
            for _ in range(2):
                assert await session.post(call("wait", 1)) == 202
            await server.calls.until(running=2)
        await server.calls.until(running=0, cancelled=2)
        with anyio.fail_after(5):
            while await session.post(call("echo")) != 404:
                await anyio.lowlevel.checkpoint()
        async with sse_session(http) as session:
            await session.post(call("echo"))
            assert "result" in await session.answer()


async def test_the_end_of_the_server_ends_streams_in_order_and_frees_the_port() -> None:
    async with serving() as server, server.http() as http:
        session = await open_session(http)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            server.task.cancel()
            assert [chunk async for chunk in stream.aiter_bytes()] == []
        with pytest.raises(asyncio.CancelledError):
            await server.task
        async with serving(port=server.port) as again:
            assert again.port == server.port


def members(app: ASGIApp) -> OneToken:
    """The holder of the token, served by `app`."""
    limiter = ConcurrencyLimiter(RequestLimits())
    return OneToken(token=TOKEN.encode(), member=Member(app=app, limiter=limiter))


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError


def _gateway(app: ASGIApp, hosts: frozenset[str] | None = None) -> Gateway:
    rules = RULES if hosts is None else replace(RULES, hosts=hosts)
    return Gateway(members(app), rules, HttpOptions(max_body=2, body_seconds=1))


async def _sent(gate: ASGIApp, received: Message, scope: Scope) -> list[Message]:
    """What the gate sends to a client that sends the same again and again."""
    sent: list[Message] = []

    async def receive() -> Message:
        return received

    async def send(message: Message) -> None:
        sent.append(message)

    await gate(scope, receive, send)
    return sent


async def test_an_application_that_listens_only_after_the_end_hears_of_it() -> None:
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        gate.end()
        heard.extend([await receive(), await receive()])

    gate = _gateway(app)
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": GOOD,
        "server": ("127.0.0.1", 8765),
    }
    with anyio.fail_after(5):
        for _ in range(2):
            sent = await _sent(gate, {"type": "http.request", "body": b"{}"}, scope)
            assert sent[0]["status"] == 503
    # A request that comes after the end does not reach it.
    assert [message["type"] for message in heard] == ["http.request", "http.disconnect"]


async def test_an_application_that_does_not_end_is_ended() -> None:
    entered = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await anyio.Event().wait()

    patience = HttpOptions(
        max_connections=1,
        max_connections_per_peer=1,
        header_seconds=5,
        keep_alive_seconds=5,
        ending_seconds=0.05,
    )
    sockets = listen([(socket.AF_INET, ("127.0.0.1", 0))])
    address = f"127.0.0.1:{port_of(sockets)}"
    server = Running(url=f"http://{address}", calls=Calls(), task=asyncio.create_task(_quiet(0)))
    with anyio.fail_after(5):
        async with listening(_gateway(app, frozenset({address})), sockets, patience):
            answer = asyncio.create_task(server.raw(server.head(Content_Length="2") + b"{}"))
            await entered.wait()
        assert status_of(await answer) == 500


async def test_a_websocket_is_closed_by_the_gate_too() -> None:
    sent = await _sent(_gateway(_nothing), {"type": "websocket.connect"}, {"type": "websocket"})
    assert sent == [{"type": "websocket.close", "code": 1008}]


# --- bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_calls_over_the_limit_are_refused_until_one_ends(era: str) -> None:
    async with serving(limits=RequestLimits(requests=1)) as server, server.http() as http:
        writer = await _calling(server, http, era)
        message, headers = modern("echo", "one-more")
        refused = await http.post("/mcp", json=message, headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["id"] == "one-more"
        writer.close()
        await server.calls.until(running=0)
        with anyio.fail_after(5):
            while (await http.post("/mcp", json=message, headers=headers)).status_code != 200:
                await anyio.lowlevel.checkpoint()


async def test_a_cancellation_gets_through_when_every_place_is_taken() -> None:
    async with serving(limits=RequestLimits(requests=1)) as server, server.http() as http:
        session = await open_session(http)
        waiting = asyncio.create_task(http.post("/mcp", json=call("wait", 5), headers=session))
        await server.calls.until(running=1)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert (await http.post("/mcp", json=cancel, headers=session)).status_code == 202
        await server.calls.until(running=0, cancelled=1)
        assert (await waiting).status_code == 200


async def test_sessions_and_streams_have_places_of_their_own_until_one_is_deleted() -> None:
    async with serving(max_sessions=1, limits=RequestLimits(requests=1)) as server, server.http() as http:
        session = await open_session(http)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200
            assert (await http.get("/mcp", headers=session)).status_code == 503
            assert (await http.post("/mcp", json=call("echo"), headers=session)).status_code == 200
        assert (await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)).status_code == 503
        assert (await http.delete("/mcp", headers=session)).status_code == 200
        await open_session(http)


async def test_an_idle_session_is_forgotten() -> None:
    async with serving(idle_seconds=0.5) as server, server.http() as http:
        session = await open_session(http)
        with anyio.fail_after(5):
            # Each request starts the clock anew, so the session is left alone in between.
            while (await http.post("/mcp", json=call("echo"), headers=session)).status_code != 404:
                await _quiet(0.7)


async def _quiet(seconds: float) -> None:
    """Let the server's clock run."""
    with anyio.move_on_after(seconds):
        await anyio.Event().wait()


async def test_sse_calls_over_the_limit_are_answered_with_an_error_until_one_ends_or_is_cancelled() -> None:
    async with (
        serving(sse=True, max_sessions=1, limits=RequestLimits(requests=1)) as server,
        server.http() as http,
        sse_session(http) as session,
    ):
        assert (await http.get("/sse")).status_code == 503
        await session.post(call("wait", 1))
        await server.calls.until(running=1)
        await session.post(call("echo", 2))
        refused = await session.answer()
        assert (refused["id"], refused["error"]["code"]) == (2, -32603)
        await session.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        )
        await server.calls.until(running=0, cancelled=1)
        for number in (3, 4):
            await session.post(call("echo", number))
            answer = await session.answer()
            assert (answer["id"], "result" in answer) == (number, True)


async def test_an_idle_sse_session_is_ended_but_not_while_it_works() -> None:
    async with (
        serving(sse=True, idle_seconds=0.5) as server,
        server.http() as http,
        sse_session(http) as session,
    ):
        await session.post(call("wait", 9))
        await server.calls.until(running=1)
        await _quiet(1)
        assert server.calls.running == 1
        server.calls.release.set()
        assert (await session.answer())["id"] == 9
        with anyio.fail_after(5), pytest.raises(StopAsyncIteration):
            await anext(session.events)


async def test_a_declared_body_over_the_limit_is_refused_before_it_is_sent() -> None:
    async with serving(max_body=1000) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(server.head(Content_Length="1000000000"))
        with anyio.fail_after(5):
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 413
        writer.close()
        # One that is sent all the same does not hold the connection.
        answer = await server.raw(server.head(Content_Length="100000") + b"x" * 50_000)
        assert status_of(answer) == 413


async def test_a_body_of_exactly_the_limit_is_read_and_no_larger_one() -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        yield b"x" * 2000

    async with serving(max_body=1000) as server, server.http() as http:
        session = await open_session(http)
        message = body_of(call("echo", text="x"))
        padded = message + b" " * (1000 - len(message))
        headers = {**session, "content-type": "application/json"}
        bodies = (padded, padded + b" ", b"x" * 2000, chunks(), padded)
        statuses = [(await http.post("/mcp", content=body, headers=headers)).status_code for body in bodies]
        assert statuses == [200, 413, 413, 413, 200]


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(max_connections=1) as server, server.http() as http:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(server.head(Content_Length="100") + b"half")
        writer.close()
        with anyio.fail_after(5):
            while (await http.get("/healthz")).status_code != 200:
                await anyio.lowlevel.checkpoint()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_second_request_before_the_first_is_answered_closes_the_connection() -> None:
    async with serving() as server, server.http() as http:
        writer = await _calling(server, http, "legacy")
        writer.write(server.head("GET", "/healthz"))
        await server.calls.until(running=0, cancelled=1)
        writer.close()


async def test_bytes_after_the_last_request_of_a_connection_cancel_it() -> None:
    async with serving() as server, server.http() as http:
        message = body_of(call("wait"))
        headers = await open_session(http)
        head = server.head(**headers, Connection="close", Content_Length=str(len(message)))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head + message)
        await server.calls.until(running=1)
        writer.write(b"more")
        await server.calls.until(running=0, cancelled=1)
        assert (await read_all(reader)).count(b"HTTP/1.1") == 1
        writer.close()


@pytest.mark.parametrize("era", ERAS)
async def test_a_handler_sees_neither_the_token_nor_the_name_that_was_used(era: str) -> None:
    async with (
        serving() as server,
        server.http(cookie="a=b", origin=f"http://127.0.0.1:{server.port}") as http,
    ):
        message, headers = (call("echo"), await open_session(http)) if era == "legacy" else modern("echo")
        assert (await http.post("/mcp", json=message, headers=headers)).status_code == 200
        assert server.calls.headers["host"] == "mcp-toolserver"
        assert not {"authorization", "cookie", "origin"} & set(server.calls.headers)


async def test_what_is_not_http_or_too_long_is_refused_without_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        for garbage in (b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\nmore"):
            assert status_of(await server.raw(garbage + b"\r\n\r\n")) in (400, 421)
        head = server.head("GET", "/healthz", X_Filler="x" * 16_500)
        assert status_of(await server.raw(head.removesuffix(b"\r\n\r\n"))) == 400
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- what the operator provides --------------------------------------------------------------------------


def test_a_token_is_long_and_not_shown_and_read_without_the_line_end_of_its_file(tmp_path: Path) -> None:
    tokens = {make_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) >= 43 and token.isascii() and token.isprintable() for token in tokens)
    file = tmp_path / "token"
    file.write_text(f"  {TOKEN}\r\n", encoding="ascii")
    file.chmod(0o600)
    assert read_token_file(str(file)) == TOKEN
    assert TOKEN not in repr(HttpOptions(token=TOKEN))
    with pytest.raises(SettingsError):
        HttpOptions(token="")


UNUSABLE: Mapping[str, tuple[bytes, int]] = {
    "readable by the group": (TOKEN.encode(), 0o640),
    "readable by others": (TOKEN.encode(), 0o604),
    "writable by others": (TOKEN.encode(), 0o622),
    "empty": (b"", 0o600),
    "blank": (b" \n", 0o600),
    "short": (b"fifteen-letters", 0o600),
    "spaces": (b"two words in one file", 0o600),
    "not ASCII": ("schlüssel-mit-umlaut".encode(), 0o600),
    "too long": (b"x" * 5000, 0o600),
}


def test_a_token_file_that_is_open_to_others_or_unusable_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for name, (content, mode) in UNUSABLE.items():
        file.write_bytes(content)
        file.chmod(mode)
        with pytest.raises(SettingsError) as refused:
            read_token_file(str(file))
        assert ("chmod 600" in str(refused.value)) == (mode != 0o600), name
        assert not content.strip() or content.decode() not in str(refused.value), name
    os.mkfifo(tmp_path / "fifo", 0o600)
    for other in ("missing", "", "fifo"):
        with pytest.raises(SettingsError):
            read_token_file(str(tmp_path / other))


def test_any_host_but_loopback_needs_a_token_file() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        check_bind(host, has_token_file=False)
    for host in ("0.0.0.0", "::", "192.0.2.1", "", "no-such-host.invalid", "::ffff:127.0.0.1"):
        with pytest.raises(SettingsError):
            check_bind(host, has_token_file=False)
        check_bind(host, has_token_file=True)


async def test_a_port_in_use_or_a_host_that_is_not_this_machine_is_a_settings_error() -> None:
    async with serving() as server:
        places: tuple[dict[str, Any], ...] = (
            {"port": server.port},
            {"host": "no-such-host.invalid"},
            {"host": "192.0.2.1"},
        )
        for place in places:
            with pytest.raises(SettingsError):
                async with serving(**place):
                    pass


def test_connections_send_small_answers_at_once() -> None:
    (listener,) = listen([(socket.AF_INET, ("127.0.0.1", 0))])
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# --- the checks ------------------------------------------------------------------------------------------

RULES = Rules(
    hosts=own_hosts(HttpOptions(token=TOKEN), ["127.0.0.1"], 8765),
    origins=frozenset({"http://127.0.0.1:8765"}),
    routes={"/mcp": Route(methods=frozenset({"POST"}))},
)
GOOD = ((b"host", b"127.0.0.1:8765"), (b"authorization", f"Bearer {TOKEN}".encode()))


def _status(*headers: tuple[bytes, bytes]) -> int:
    found = check_request(RequestHead(method="POST", path="/mcp", headers=headers), RULES)
    return 200 if found is None else found.status


def test_two_tokens_are_none_and_two_hosts_are_none() -> None:
    assert bearer_token(RequestHead(method="POST", path="/mcp", headers=(*GOOD, GOOD[1]))) == INVALID_TOKEN
    assert _status(*GOOD, GOOD[0]) == 421


def test_the_calls_of_a_minute_can_be_made_at_once_and_then_evenly() -> None:
    for per_minute in (1, 7, 60, 1000):
        times = [1000.0]
        pace = RateLimiter(per_minute, lambda times=times: times[-1])
        assert [pace.take("a") for _ in range(per_minute)] == [0] * per_minute
        wait = pace.take("a")
        assert 0 < wait <= 60 / per_minute + 1
        assert pace.take("b") == 0
        times.append(times[-1] + wait)
        assert pace.take("a") == 0
        times.append(times[-1] + 61)
        assert [pace.take("a") for _ in range(per_minute)] == [0] * per_minute
        assert pace.take("a") > 0


def test_little_is_remembered_of_clients_without_a_request() -> None:
    limiter = ConcurrencyLimiter(RequestLimits())
    for number in range(500):
        assert limiter.acquire(str(number), "tools/call") is None
        limiter.release(str(number))
    assert (limiter._count, limiter._by_client) == (0, {})
    pace = RateLimiter(2, lambda: 1000.0)
    for number in range(5000):
        pace.take(str(number))
    assert len(pace._rested) <= 1024
    assert [pace.take("4999") for _ in range(2)] == [0, 30]


def named(name: str, tool: str) -> tuple[dict[str, Any], dict[str, str]]:
    message, headers = modern(tool)
    message["params"]["_meta"][CLIENT_INFO_META_KEY] = {"name": name, "version": "1"}
    return message, headers


async def test_a_flood_over_http_is_refused_and_others_are_served() -> None:
    limits = RequestLimits(requests=4, of_one=2)
    async with (
        serving(limits=limits) as server,
        server.http() as http,
        anyio.create_task_group() as tasks,
    ):
        message, headers = named("flood", "wait")
        for _ in range(2):
            tasks.start_soon(lambda: http.post("/mcp", json=message, headers=headers))
        await server.calls.until(running=2)
        refused = await http.post("/mcp", json=message, headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        error = refused.json()["error"]
        assert (error["code"], error["data"]) == (429, {"retryAfterSeconds": 1})
        other, headers = named("other", "echo")
        assert (await http.post("/mcp", json=other, headers=headers)).status_code == 200
        server.calls.release.set()


async def test_each_session_is_a_client() -> None:
    async with (
        serving(limits=RequestLimits(requests=4, of_one=1)) as server,
        server.http() as http,
        anyio.create_task_group() as tasks,
    ):
        busy, free = await open_session(http), await open_session(http)
        tasks.start_soon(lambda: http.post("/mcp", json=call("wait"), headers=busy))
        await server.calls.until(running=1)
        assert (await http.post("/mcp", json=call("echo", 2), headers=busy)).status_code == 429
        assert (await http.post("/mcp", json=call("echo", 2), headers=free)).status_code == 200
        server.calls.release.set()


async def test_calls_in_a_minute_are_bounded_over_sse() -> None:
    async with serving(sse=True, limits=RequestLimits(per_minute=1)) as server, server.http() as http:
        for _ in range(2):
            async with sse_session(http) as session:
                await session.post(call("echo", 1))
                assert (await session.answer())["id"] == 1
                await session.post(call("echo", 2))
                refused = (await session.answer())["error"]
                assert (refused["code"], refused["data"]["retryAfterSeconds"]) == (429, 60)


async def test_all_bodies_together_have_bounded_room() -> None:
    size = 2048
    async with serving(max_body=size) as server:
        held = server.head(content_length=str(size)) + b"x" * (size - 1)
        small = server.head(content_length="2", connection="close") + b"{}"
        writers: list[asyncio.StreamWriter] = []
        for _ in range(LARGE_BODIES):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(held)
            writers.append(writer)
        # What is left is a byte for each of them: a second attempt of that size finds no room.
        large = server.head(content_length=str(size), connection="close") + b"x" * size
        with anyio.fail_after(10):
            while status_of(await server.raw(large)) != 503:
                await anyio.lowlevel.checkpoint()
        assert status_of(await server.raw(small)) != 503
        for writer in writers:
            writer.close()
        with anyio.fail_after(10):
            while status_of(await server.raw(large)) == 503:
                await anyio.lowlevel.checkpoint()


NAMES = ("Tools.lan", "proxy.example.org", "localhost:9000", "[2001:db8::7]:80")


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server on every address, with names that it does not know by itself."""
    async with serving(host="0.0.0.0", names=NAMES) as server, server.http(**ACCEPT) as made:
        yield made


async def answer(http: httpx.AsyncClient, path: str = "/mcp", **headers: str) -> httpx.Response:
    """The answer to a handshake with these headers, in which PORT is that of the server."""
    port = str(http.base_url.port)
    filled = {name.replace("_", "-"): value.replace("PORT", port) for name, value in headers.items()}
    return await http.post(path, json=INITIALIZE, headers=filled)


ALLOWED: Mapping[str, dict[str, str]] = {
    "usual port": {"Host": "tools.lan"},
    "own port": {"Host": "tools.lan:PORT"},
    "capitals": {"Host": "TOOLS.lan"},
    "any port": {"Host": "tools.lan:8444"},
    "mapped port": {"Host": "localhost:9000"},
    "version 6": {"Host": "[2001:db8::7]:80"},
    "loopback": {"Host": "localhost:PORT"},
    "the address that was reached": {"Host": "127.0.0.1:PORT"},
    "behind TLS": {"Host": "proxy.example.org", "Origin": "https://proxy.example.org"},
    "behind TLS at any port": {"Host": "tools.lan:8444", "Origin": "https://tools.lan:8444"},
    "mapped origin": {"Host": "localhost:9000", "Origin": "http://localhost:9000"},
}


async def test_an_allowed_name_is_the_server(http: httpx.AsyncClient) -> None:
    statuses = {name: (await answer(http, **headers)).status_code for name, headers in ALLOWED.items()}
    assert statuses == dict.fromkeys(ALLOWED, 200)
    assert (await answer(http, "/mcp/", Host="tools.lan")).status_code == 200


REFUSED: Mapping[str, tuple[dict[str, str], int]] = {
    "another name": ({"Host": "evil.example"}, 421),
    "another address than the one that was reached": ({"Host": "127.0.0.2:PORT"}, 421),
    "suffix": ({"Host": "tools.lan.evil.example"}, 421),
    "subdomain": ({"Host": "x.tools.lan"}, 421),
    "another name at another port": ({"Host": "evil.example:8444"}, 421),
    "another mapped port": ({"Host": "localhost:9001"}, 421),
    "another origin": ({"Host": "tools.lan", "Origin": "http://evil.example"}, 403),
    "origin at another port": ({"Host": "tools.lan", "Origin": "http://tools.lan:3000"}, 403),
    "no origin": ({"Host": "tools.lan", "Origin": "null"}, 403),
    "cross-site": ({"Host": "tools.lan", "Sec_Fetch_Site": "cross-site"}, 403),
}


async def test_a_name_that_a_page_could_bring_is_not(http: httpx.AsyncClient) -> None:
    statuses = {name: (await answer(http, **headers)).status_code for name, (headers, _) in REFUSED.items()}
    assert statuses == {name: refused for name, (_, refused) in REFUSED.items()}


async def test_the_refusal_names_the_host_and_its_port(http: httpx.AsyncClient) -> None:
    for host, shown in (("Localhost:9001", "localhost:9001"), ("<b>x", "NAME")):
        assert f"--allowed-host {shown}." in (await answer(http, Host=host)).text
