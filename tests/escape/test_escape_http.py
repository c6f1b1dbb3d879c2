"""Attacks over HTTP, each next to the honest request that it imitates, which works.

The requests carry the right token unless the case is about the token: it must not be what stops the others.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence

import anyio
import pytest

from tests.support.http_server import (
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


OF_OTHER_ORIGINS: Mapping[str, tuple[dict[str, str], int]] = {
    "HTTP01": ({"Origin": "http://evil.com"}, 403),
    "HTTP03": ({"Origin": "http://localhost:3000"}, 403),
    "HTTP03-null": ({"Origin": "null"}, 403),
    "HTTP03-scheme": ({"Origin": "https://127.0.0.1:{port}"}, 403),
    "HTTP03-suffix": ({"Origin": "http://127.0.0.1:{port}.evil.com"}, 403),
    "HTTP04": ({"Host": "evil.com"}, 421),
    "HTTP04-port": ({"Host": "evil.com:{port}"}, 421),
    "HTTP04-no-port": ({"Host": "localhost"}, 421),
    "HTTP04-dot": ({"Host": "localhost.:{port}"}, 421),
    "HTTP05": ({"Host": "127.0.0.1.nip.io:{port}"}, 421),
    "HTTP22-host": ({"Host": "evil.com", "X-Forwarded-Host": "127.0.0.1:{port}"}, 421),
    "HTTP22-origin": ({"Origin": "http://evil.com", "X-Forwarded-Proto": "http"}, 403),
    "HTTP24": ({"Sec-Fetch-Site": "cross-site"}, 403),
    "HTTP24-same-site": ({"Sec-Fetch-Site": "same-site"}, 403),
}

OF_HONEST_CLIENTS: Mapping[str, dict[str, str]] = {
    "nothing": {},
    "HTTP01": {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
    "HTTP24": {"Sec-Fetch-Site": "none"},
    **{host: {"Host": f"{host}:{{port}}"} for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]")},
    "HTTP22": {"X-Forwarded-Host": "evil.com", "Forwarded": "host=evil.com"},
}


@pytest.mark.parametrize("sse", SSE)
async def test_a_page_of_another_origin_gets_nothing(sse: bool) -> None:
    target = "/messages/?session_id=" + "0" * 32 if sse else "/mcp"
    found = 404 if sse else 200
    cases = {
        **OF_OTHER_ORIGINS,
        **{f"honest {name}": (one, found) for name, one in OF_HONEST_CLIENTS.items()},
    }
    wrong: dict[str, int] = {}
    async with serving(sse=sse) as server:
        for name, (headers, status) in cases.items():
            filled = {field: value.format(port=server.port) for field, value in headers.items()}
            answered = await _status(server, _post(server, target, **filled))
            if answered != status:
                wrong[name] = answered
    assert wrong == {}


async def test_a_request_line_with_a_whole_address_is_refused() -> None:
    async with serving() as server:
        for target in ("http://evil.com/mcp", "*"):
            assert await _status(server, _post(server, target)) == 400
        assert await _status(server, _post(server)) == 200


OF_IMAGE_TAGS: Mapping[str, dict[str, str]] = {
    "HTTP19": {"Authorization": "", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    "HTTP19-old-browser": {"Authorization": ""},
    "HTTP19-with-token": {},
    "HTTP19-image": {"Accept": "image/*"},
    "HTTP19-modern": {"MCP-Protocol-Version": "2026-07-28"},
}


async def test_a_get_by_an_image_tag_has_no_effect() -> None:
    async with serving(max_sessions=1) as server, server.http() as http:
        for case, headers in OF_IMAGE_TAGS.items():
            for _ in range(3):
                status = await _status(server, server.head("GET", Connection="close", **headers))
                assert 400 <= status < 500, case
        # No session was opened, for the only place is free.
        session = await open_session(http)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200


async def test_a_websocket_upgrade_is_refused() -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "WebSocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with serving() as server:
        for target in ("/mcp", "/healthz"):
            assert await _status(server, server.head("GET", target, **upgrade)) == 400
        assert await _status(server, server.head("GET", "/healthz", Connection="close", Upgrade="h2c")) == 200


async def test_no_other_method_is_answered() -> None:
    async with serving() as server, server.http() as http:
        for method in ("OPTIONS", "PUT", "PATCH", "TRACE"):
            answer = await http.request(method, "/mcp", headers={"access-control-request-method": "POST"})
            assert answer.status_code == 405
            assert not [name for name in answer.headers if name.startswith("access-control")]


NO_TOKEN = {
    "HTTP10-none": "",
    "HTTP10": "Bearer wrong-token-of-some-length",
    "HTTP10-prefix": f"Bearer {TOKEN[:-1]}",
    "HTTP10-longer": f"Bearer {TOKEN}x",
    "HTTP10-case": f"Bearer {TOKEN.upper()}",
    "HTTP10-empty": "Bearer",
    "HTTP10-latin": "Bearer schl\xfcssel",
    "HTTP10-no-scheme": TOKEN,
    "HTTP10-basic": f"Basic {TOKEN}",
    "HTTP10-twice": f"Bearer {TOKEN}, Bearer {TOKEN}",
}


@pytest.mark.parametrize("sse", SSE)
async def test_no_token_but_the_right_one_is_accepted(sse: bool) -> None:
    async with serving(sse=sse) as server:
        for target in ("/sse", "/messages/?session_id=" + "0" * 32) if sse else ("/mcp",):
            method = "GET" if target == "/sse" else "POST"
            for case, authorization in NO_TOKEN.items():
                head = server.head(method, target, Authorization=authorization, Connection="close")
                answer = await server.raw(head)
                assert status_of(answer) == 401, case
                assert b"www-authenticate: Bearer" in answer, case
        for scheme in () if sse else ("bearer", "Bearer", "BEARER"):
            assert await _status(server, _post(server, Authorization=f"{scheme} {TOKEN}")) == 200, scheme


@pytest.mark.parametrize("sse", SSE)
async def test_a_token_in_the_query_is_refused_and_never_logged(
    sse: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    named = (f"/mcp?token={TOKEN}", f"/mcp?access_token={TOKEN}", f"/mcp?{TOKEN}")
    other = (f"/sse?token={TOKEN}", f"/messages/?session_id={'0' * 32}&token={TOKEN}")
    async with serving(sse=sse) as server:
        for target in (*(other if sse else named), f"/healthz?token={TOKEN}"):
            for authorization in (f"Bearer {TOKEN}", ""):
                method = "POST" if "/m" in target else "GET"
                head = server.head(method, target, Authorization=authorization, Connection="close")
                answer = await server.raw(head)
                assert status_of(answer) == 400, target
                assert TOKEN.encode() not in answer, target
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


async def test_a_slow_body_is_answered_with_408_and_the_connection_closed() -> None:
    async with serving(body_seconds=0.5) as server:
        request = _post(server)
        head, _, body = request.partition(b"\r\n\r\n")
        chunked = server.head(Transfer_Encoding="chunked").removesuffix(b"\r\n\r\n")
        for start, rest in ((head, body), (chunked, b"1\r\n{\r\n" * len(body))):
            answer = await _drip(server, start + b"\r\n\r\n", rest)
            assert status_of(answer) == 408
            assert b"connection: close" in answer.lower()
        assert await _status(server, request) == 200
        assert await _status(server, server.head(Content_Length="10")) == 408


async def test_slow_headers_close_the_connection() -> None:
    async with serving(header_seconds=0.5) as server:
        honest = server.head("GET", "/healthz")
        for start in (b"", b"GET /healthz HTTP/1.1\r\n", honest):
            answer = await _drip(server, start, b"X-Filler: " + b"x" * 1000)
            assert (b"200" in answer) == (start == honest)
        assert await server.raw(b"") == b""
        assert await _status(server, server.head("GET", "/healthz", Connection="close")) == 200


async def test_hundreds_of_connections_do_not_take_the_server_down() -> None:
    """HTTP16."""
    async with serving() as server:
        health = server.head("GET", "/healthz")
        opened: list[asyncio.StreamWriter] = []
        held: list[asyncio.StreamReader] = []
        for _ in range(450):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            opened.append(writer)
            writer.write(health)
            with anyio.fail_after(5):
                answered = await reader.readuntil(b"\r\n\r\n")
            # A new connection takes the place of one that waits for its next request.
            assert status_of(answered) == 200
            held.append(reader)
        with anyio.fail_after(5):
            while sum(not reader.at_eof() for reader in held) > 384:
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


async def test_half_open_connections_keep_nobody_out() -> None:
    async with serving(**SMALL) as server:
        flooding = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
        held = [writer for address in flooding for writer in await _half_open(server, address, 20)]
        for address in ("127.0.0.1", "127.0.0.4") * 3:
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
        calls = await _waiting(server, 5)
        held = await _half_open(server, "127.0.0.1", 20)
        assert await _status_from(server, "127.0.0.1") == 200
        server.calls.release.set()
        assert [status_of(answer) for answer in await asyncio.gather(*calls)] == [200] * 5
        for writer in held:
            writer.close()


async def test_where_every_connection_has_a_request_a_new_one_is_turned_away() -> None:
    async with serving(max_connections=2, max_connections_per_peer=2) as server:
        calls = await _waiting(server, 2)
        assert [await _status_from(server, address) for address in ("127.0.0.1", "127.0.0.2")] == [503, 503]
        server.calls.release.set()
        assert [status_of(answer) for answer in await asyncio.gather(*calls)] == [200, 200]


async def _waiting(server: Running, count: int) -> list[asyncio.Task[bytes]]:
    """Calls in progress, each on a connection of its own."""
    message, headers = modern("wait")
    body = body_of(message)
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    head = server.head(Content_Length=str(len(body)), Connection="close", **named)
    calls = [asyncio.create_task(server.raw(head + body)) for _ in range(count)]
    await server.calls.until(running=count)
    return calls


READ_IN_TWO_WAYS: Mapping[str, dict[str, str]] = {
    "HTTP23": {"Content-Length": "5", "Transfer-Encoding": "chunked"},
    "HTTP23-te-first": {"Transfer-Encoding": "chunked", "Content-Length": "5"},
    "HTTP23-two-lengths": {"Content-Length": "5", "content-length": "6"},
    "HTTP23-unknown": {"Transfer-Encoding": "xchunked"},
    "HTTP23-two-codings": {"Transfer-Encoding": "chunked", "transfer-encoding": "identity"},
    "HTTP23-sign": {"Content-Length": "+5"},
    "HTTP23-fold": {"Content-Length": "5", "X-Folded": "a\r\n Transfer-Encoding: chunked"},
}


async def test_a_request_that_can_be_read_in_two_ways_smuggles_nothing() -> None:
    async with serving() as server, server.http() as http:
        session = await open_session(http)
        message = body_of(call("wait"))
        smuggled = server.head(**session, Content_Length=str(len(message))) + message
        honest = server.head(**session, Transfer_Encoding="chunked", Connection="close")
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body_of(call("echo"))), body_of(call("echo")))
        assert await _status(server, honest + chunks) == 200
        for case, framing in READ_IN_TWO_WAYS.items():
            fields = "".join(f"{name}: {value}\r\n" for name, value in framing.items()).encode()
            start = server.head(**session).removesuffix(b"\r\n") + fields + b"\r\n"
            for rest in (chunks, b"0\r\n\r\n" + smuggled):
                answer = await server.raw(start + rest)
                assert answer.count(b"HTTP/1.1 ") <= 1, case
                assert not answer or 400 <= status_of(answer) < 600, case
            assert (server.calls.running, server.calls.cancelled) == (0, 0), case


NO_REQUEST = {
    "JSON14": (json.dumps([call("wait", 1), call("wait", 2)]), -32600),
    "JSON14-empty": ("[]", -32600),
    "JSON14-text": ('"text"', -32600),
    "JSON14-broken": ("{", -32700),
    "JSON14-deep": ("[" * 100_000, -32700),
    "JSON14-nan": ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"n": NaN}}', -32700),
}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_batch_is_refused_whole(era: str) -> None:
    async with serving() as server, server.http() as http:
        message, headers = (call("echo"), await open_session(http)) if era == "legacy" else modern("echo")
        headers = {**headers, "content-type": "application/json"}
        for case, (body, code) in NO_REQUEST.items():
            answer = await http.post("/mcp", content=body.encode(), headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), case
        assert (await http.post("/mcp", content=body_of(message), headers=headers)).status_code == 200
        assert (server.calls.running, server.calls.cancelled) == (0, 0)
