"""Attacks over HTTP, each next to the honest request that it imitates, which works.

The requests carry the right token unless the case is about the token: it must not be what stops the others.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.support import live
from tests.support.http_server import (
    ACCEPT,
    INITIALIZE,
    TOKEN,
    Running,
    body_of,
    call,
    modern,
    open_session,
    read_all,
    serving,
    status_of,
)

SSE = [pytest.param(False, id="streamable"), pytest.param(True, id="sse")]


def _post(server: Running, target: str = "/mcp", **headers: str) -> bytes:
    """A whole handshake request on a connection of its own."""
    body = body_of(INITIALIZE)
    framing = {"Content_Length": str(len(body)), "Connection": "close"}
    return server.head("POST", target, **{**framing, **headers}) + body


async def _status(server: Running, request: bytes) -> int:
    return status_of(await server.raw(request))


# --- web pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Origin": "http://evil.com"}, 403, id="HTTP01"),
        pytest.param({"Origin": "http://localhost:3000"}, 403, id="HTTP03"),
        pytest.param({"Origin": "null"}, 403, id="HTTP03-null"),
        pytest.param({"Origin": "https://127.0.0.1:{port}"}, 403, id="HTTP03-scheme"),
        pytest.param({"Origin": "http://127.0.0.1:{port}.evil.com"}, 403, id="HTTP03-suffix"),
        pytest.param({"Host": "evil.com"}, 421, id="HTTP04"),
        pytest.param({"Host": "evil.com:{port}"}, 421, id="HTTP04-port"),
        pytest.param({"Host": "localhost"}, 421, id="HTTP04-no-port"),
        pytest.param({"Host": "localhost.:{port}"}, 421, id="HTTP04-dot"),
        pytest.param({"Host": "127.0.0.1.nip.io:{port}"}, 421, id="HTTP05"),
        pytest.param({"Host": "evil.com", "X-Forwarded-Host": "127.0.0.1:{port}"}, 421, id="HTTP22-host"),
        pytest.param({"Origin": "http://evil.com", "X-Forwarded-Proto": "http"}, 403, id="HTTP22-origin"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="HTTP24"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="HTTP24-same-site"),
    ],
)
@pytest.mark.parametrize("sse", SSE)
async def test_a_page_of_another_origin_gets_nothing(headers: dict[str, str], status: int, sse: bool) -> None:
    async with serving(sse=sse) as server:
        filled = {name: value.format(port=server.port) for name, value in headers.items()}
        target = "/messages/?session_id=" + "0" * 32 if sse else "/mcp"
        assert await _status(server, _post(server, target, **filled)) == status
        assert await _status(server, _post(server, target)) == (404 if sse else 200)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}, id="HTTP01"),
        pytest.param({"Sec-Fetch-Site": "none"}, id="HTTP24"),
        pytest.param({"X-Forwarded-Host": "evil.com", "Forwarded": "host=evil.com"}, id="HTTP22"),
    ],
)
async def test_what_honest_clients_add_changes_nothing(headers: dict[str, str]) -> None:
    async with serving() as server:
        filled = {name: value.format(port=server.port) for name, value in headers.items()}
        assert await _status(server, _post(server, **filled)) == 200


@pytest.mark.parametrize(
    "target", [pytest.param("http://evil.com/mcp", id="HTTP22"), pytest.param("*", id="star")]
)
async def test_a_request_line_with_a_whole_address_is_refused(target: str) -> None:
    async with serving() as server:
        assert await _status(server, _post(server, target)) == 400
        assert await _status(server, _post(server)) == 200


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(
            {"Authorization": "", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, id="HTTP19"
        ),
        pytest.param({"Authorization": ""}, id="HTTP19-old-browser"),
        pytest.param({}, id="HTTP19-with-token"),
        pytest.param({"Accept": "image/*"}, id="HTTP19-image"),
        pytest.param({"MCP-Protocol-Version": "2026-07-28"}, id="HTTP19-modern"),
    ],
)
async def test_a_get_by_an_image_tag_has_no_effect(headers: dict[str, str]) -> None:
    async with serving(max_sessions=1) as server, server.http() as http:
        for _ in range(3):
            status = await _status(server, server.head("GET", Connection="close", **headers))
            assert 400 <= status < 500
        # No session was opened, for the only place is free.
        session = await open_session(http)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200


@pytest.mark.parametrize(
    "target", [pytest.param("/mcp", id="HTTP20"), pytest.param("/healthz", id="HTTP20-public")]
)
async def test_a_websocket_upgrade_is_refused(target: str) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "WebSocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with serving() as server:
        assert await _status(server, server.head("GET", target, **upgrade)) == 400
        assert await _status(server, server.head("GET", "/healthz", Connection="close", Upgrade="h2c")) == 200


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "TRACE"])
async def test_no_other_method_is_answered(method: str) -> None:
    async with serving() as server, server.http() as http:
        answer = await http.request(method, "/mcp", headers={"access-control-request-method": "POST"})
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]


# --- the token -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param("", id="HTTP10-none"),
        pytest.param("Bearer wrong-token-of-some-length", id="HTTP10"),
        pytest.param(f"Bearer {TOKEN[:-1]}", id="HTTP10-prefix"),
        pytest.param(f"Bearer {TOKEN}x", id="HTTP10-longer"),
        pytest.param(f"Bearer {TOKEN.upper()}", id="HTTP10-case"),
        pytest.param("Bearer", id="HTTP10-empty"),
        pytest.param("Bearer schl\xfcssel", id="HTTP10-latin"),
        pytest.param(TOKEN, id="HTTP10-no-scheme"),
        pytest.param(f"Basic {TOKEN}", id="HTTP10-basic"),
        pytest.param(f"Bearer {TOKEN}, Bearer {TOKEN}", id="HTTP10-twice"),
    ],
)
@pytest.mark.parametrize("sse", SSE)
async def test_no_token_but_the_right_one_is_accepted(authorization: str, sse: bool) -> None:
    async with serving(sse=sse) as server:
        for target in ("/sse", "/messages/?session_id=" + "0" * 32) if sse else ("/mcp",):
            method = "GET" if target == "/sse" else "POST"
            answer = await server.raw(
                server.head(method, target, Authorization=authorization, Connection="close")
            )
            assert status_of(answer) == 401
            assert b"www-authenticate: Bearer" in answer
        if not sse:
            assert await _status(server, _post(server)) == 200


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(f"/mcp?token={TOKEN}", id="HTTP11"),
        pytest.param(f"/mcp?access_token={TOKEN}", id="HTTP11-access"),
        pytest.param(f"/mcp?{TOKEN}", id="HTTP11-bare"),
        pytest.param(f"/sse?token={TOKEN}", id="HTTP11-sse"),
        pytest.param(f"/messages/?session_id={'0' * 32}&token={TOKEN}", id="HTTP11-messages"),
        pytest.param(f"/healthz?token={TOKEN}", id="HTTP11-public"),
    ],
)
@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", ""])
async def test_a_token_in_the_query_is_refused_and_never_logged(
    target: str, authorization: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(sse="/mcp" not in target) as server:
        method = "POST" if "/m" in target else "GET"
        answer = await server.raw(
            server.head(method, target, Authorization=authorization, Connection="close")
        )
        assert status_of(answer) == 400
        assert TOKEN.encode() not in answer
    assert TOKEN not in caplog.text


async def test_a_token_in_the_header_is_accepted_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as server, server.http() as http:
        session = await open_session(http)
        assert (await http.post("/mcp", json=call("echo"), headers=session)).status_code == 200
        message, headers = modern("echo")
        assert (await http.post("/mcp", json=message, headers=headers)).status_code == 200
    logged = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert logged
    assert not [record for record in logged if TOKEN in record.getMessage()]


# --- holding the server up -------------------------------------------------------------------------------


async def _drip(server: Running, start: bytes, rest: bytes) -> bytes:
    """Send `start`, then `rest` byte by byte for as long as the server listens; what it answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answer = asyncio.create_task(read_all(reader))
    try:
        writer.write(start)
        with anyio.fail_after(10):
            for byte in rest:
                await asyncio.wait((answer,), timeout=0.02)
                if answer.done():
                    break
                writer.write(bytes((byte,)))
            return await answer
    finally:
        answer.cancel()
        writer.close()


@pytest.mark.parametrize(
    "framing", [pytest.param("length", id="HTTP14"), pytest.param("chunked", id="HTTP14-chunked")]
)
async def test_a_slow_body_is_answered_with_408_and_the_connection_closed(framing: str) -> None:
    async with serving(body_seconds=0.5) as server:
        request = _post(server)
        head, _, body = request.partition(b"\r\n\r\n")
        if framing == "chunked":
            head = server.head(Transfer_Encoding="chunked").removesuffix(b"\r\n\r\n")
            body = b"1\r\n{\r\n" * len(body)
        answer = await _drip(server, head + b"\r\n\r\n", body)
        assert status_of(answer) == 408
        assert b"connection: close" in answer.lower()
        assert await _status(server, request) == 200


async def test_a_body_that_never_comes_is_answered_with_408() -> None:
    async with serving(body_seconds=0.5) as server:
        assert await _status(server, server.head(Content_Length="10")) == 408


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"", id="HTTP15"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n", id="HTTP15-after-line"),
        pytest.param(None, id="HTTP15-after-a-request"),
    ],
)
async def test_slow_headers_close_the_connection(start: bytes | None) -> None:
    async with serving(header_seconds=0.5) as server:
        honest = server.head("GET", "/healthz")
        answer = await _drip(server, honest if start is None else start, b"X-Filler: " + b"x" * 1000)
        assert (b"200" in answer) == (start is None)
        assert await _status(server, server.head("GET", "/healthz", Connection="close")) == 200


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with serving(header_seconds=0.5) as server:
        assert await server.raw(b"") == b""


@pytest.mark.parametrize("per_peer", [pytest.param(None, id="HTTP16"), pytest.param(500, id="HTTP16-total")])
async def test_a_thousand_connections_do_not_take_the_server_down(per_peer: int | None) -> None:
    options: dict[str, Any] = (
        {} if per_peer is None else {"max_connections_per_peer": per_peer, "max_connections": 100}
    )
    async with serving(**options) as server:
        health = server.head("GET", "/healthz")
        opened: list[asyncio.StreamWriter] = []
        held: list[asyncio.StreamReader] = []
        for _ in range(1000):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            opened.append(writer)
            writer.write(health)
            with anyio.fail_after(5):
                answered = await reader.readuntil(b"\r\n\r\n")
            # A new connection takes the place of one that waits for its next request.
            assert status_of(answered) == 200
            held.append(reader)
        with anyio.fail_after(5):
            while sum(not reader.at_eof() for reader in held) > (384 if per_peer is None else 100):
                await _read_on(held)
    for writer in opened:
        writer.close()


async def _read_on(readers: Sequence[asyncio.StreamReader]) -> None:
    """Take what has arrived, so that `at_eof` tells of connections that the server has closed."""
    for reader in readers:
        with anyio.move_on_after(0):
            await reader.read(65536)
    await anyio.sleep(0.01)


async def _half_open(server: Running, address: str, count: int) -> list[asyncio.StreamWriter]:
    """Connections from `address` that begin a request head and do not end it."""
    found: list[asyncio.StreamWriter] = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        found.append(writer)
    return found


async def _status_from(server: Running, address: str) -> int:
    """The status of one whole request from `address`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
    writer.write(server.head("GET", "/healthz", Connection="close"))
    with anyio.fail_after(5):
        answer = await read_all(reader)
    writer.close()
    return status_of(answer)


SMALL = {"max_connections": 8, "max_connections_per_peer": 6, "header_seconds": 60.0}


@pytest.mark.parametrize(
    "address", [pytest.param("127.0.0.1", id="the-same"), pytest.param("127.0.0.4", id="another")]
)
async def test_half_open_connections_keep_nobody_out(address: str) -> None:
    async with serving(**SMALL) as server:
        held = [
            *await _half_open(server, "127.0.0.1", 20),
            *await _half_open(server, "127.0.0.2", 20),
            *await _half_open(server, "127.0.0.3", 20),
        ]
        for _ in range(3):
            assert await _status_from(server, address) == 200
        for writer in held:
            writer.close()


async def test_a_flood_from_one_address_closes_no_connection_of_another() -> None:
    async with serving(**SMALL) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
        health = server.head("GET", "/healthz")
        held: list[asyncio.StreamWriter] = []
        for _ in range(3):
            writer.write(health)
            with anyio.fail_after(5):
                answer = await reader.readuntil(b"\r\n\r\nok")
            assert status_of(answer) == 200
            held += await _half_open(server, "127.0.0.1", 20)
            held += await _half_open(server, "127.0.0.3", 20)
        for opened in (writer, *held):
            opened.close()


async def test_a_flood_closes_no_connection_whose_request_is_in_progress() -> None:
    async with serving(**SMALL) as server:
        message, headers = modern("wait")
        body = body_of(message)
        head = server.head(Content_Length=str(len(body)), Connection="close", **_named(headers))
        calls = [asyncio.create_task(server.raw(head + body)) for _ in range(5)]
        await server.calls.until(running=5)
        held = await _half_open(server, "127.0.0.1", 20)
        assert await _status_from(server, "127.0.0.1") == 200
        server.calls.release.set()
        assert [status_of(answer) for answer in await asyncio.gather(*calls)] == [200] * 5
        for writer in held:
            writer.close()


async def test_where_every_connection_has_a_request_a_new_one_is_turned_away() -> None:
    async with serving(max_connections=2, max_connections_per_peer=2) as server:
        message, headers = modern("wait")
        body = body_of(message)
        head = server.head(Content_Length=str(len(body)), Connection="close", **_named(headers))
        calls = [asyncio.create_task(server.raw(head + body)) for _ in range(2)]
        await server.calls.until(running=2)
        assert [await _status_from(server, address) for address in ("127.0.0.1", "127.0.0.2")] == [503, 503]
        server.calls.release.set()
        assert [status_of(answer) for answer in await asyncio.gather(*calls)] == [200, 200]


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def test_450_half_open_connections_keep_no_client_of_a_real_server_out(tmp_path: Path) -> None:
    with live.serving(live.Setup.below(tmp_path), "http") as url, ExitStack() as held:
        address = httpx.URL(url)
        for _ in range(450):
            opened = held.enter_context(
                socket.create_connection((address.host, address.port or 80), timeout=5)
            )
            opened.sendall(b"POST /mcp HTTP/1.1\r\n")
        with httpx.Client(timeout=5, trust_env=False) as http:
            headers = {**ACCEPT, "authorization": f"Bearer {live.TOKEN}"}
            answer = http.post(url, json=INITIALIZE, headers=headers)
    assert answer.status_code == 200


# --- what the bytes mean ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param({"Content-Length": "5", "Transfer-Encoding": "chunked"}, id="HTTP23"),
        pytest.param({"Transfer-Encoding": "chunked", "Content-Length": "5"}, id="HTTP23-te-first"),
        pytest.param({"Content-Length": "5", "content-length": "6"}, id="HTTP23-two-lengths"),
        pytest.param({"Transfer-Encoding": "xchunked"}, id="HTTP23-unknown"),
        pytest.param(
            {"Transfer-Encoding": "chunked", "transfer-encoding": "identity"}, id="HTTP23-two-codings"
        ),
        pytest.param({"Content-Length": "+5"}, id="HTTP23-sign"),
        pytest.param(
            {"Content-Length": "5", "X-Folded": "a\r\n Transfer-Encoding: chunked"}, id="HTTP23-fold"
        ),
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_smuggles_nothing(framing: dict[str, str]) -> None:
    async with serving() as server, server.http() as http:
        session = await open_session(http)
        message = body_of(call("wait"))
        smuggled = server.head(**session, Content_Length=str(len(message))) + message
        honest = server.head(**session, Transfer_Encoding="chunked", Connection="close")
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body_of(call("echo"))), body_of(call("echo")))
        assert await _status(server, honest + chunks) == 200

        fields = "".join(f"{name}: {value}\r\n" for name, value in framing.items()).encode()
        start = server.head(**session).removesuffix(b"\r\n") + fields + b"\r\n"
        for rest in (chunks, b"0\r\n\r\n" + smuggled):
            answer = await server.raw(start + rest)
            assert answer.count(b"HTTP/1.1 ") <= 1
            assert not answer or 400 <= status_of(answer) < 600
        assert (server.calls.running, server.calls.cancelled) == (0, 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(json.dumps([call("wait", 1), call("wait", 2)]), -32600, id="JSON14"),
        pytest.param("[]", -32600, id="JSON14-empty"),
        pytest.param('"text"', -32600, id="JSON14-text"),
        pytest.param("{", -32700, id="JSON14-broken"),
        pytest.param("[" * 100_000, -32700, id="JSON14-deep"),
        pytest.param(
            '{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"n": NaN}}', -32700, id="JSON14-nan"
        ),
    ],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_batch_is_refused_whole(body: str, code: int, era: str) -> None:
    async with serving() as server, server.http() as http:
        message, headers = (call("echo"), await open_session(http)) if era == "legacy" else modern("echo")
        headers = {**headers, "content-type": "application/json"}
        answer = await http.post("/mcp", content=body.encode(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert (await http.post("/mcp", content=body_of(message), headers=headers)).status_code == 200
        assert (server.calls.running, server.calls.cancelled) == (0, 0)
