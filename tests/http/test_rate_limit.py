"""How much clients may ask at once and in a minute, and what one hears that asks for more."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import httpx
import pytest
from mcp_types import CLIENT_INFO_META_KEY

from mcp_toolserver.protocol.http.gate import LARGE_BODIES, message_in
from mcp_toolserver.protocol.http.request_checks import RequestHead
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, RateLimiter, RequestLimits
from tests.support.http_server import call, modern, open_session, serving, sse_session, status_of
from tests.support.live import TOKEN, Setup
from tests.support.live import serving as started

POST = RequestHead(method="POST", path="/mcp")


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


def test_a_client_without_a_session_goes_by_its_name() -> None:
    named: list[tuple[dict[str, Any], str]] = [
        ({"_meta": {CLIENT_INFO_META_KEY: {"name": "me"}}}, "me"),
        ({"_meta": {CLIENT_INFO_META_KEY: {"name": 1}}}, ""),
        ({"_meta": {CLIENT_INFO_META_KEY: {"name": "x" * 999}}}, "x" * 128),
        ({}, ""),
    ]
    for params, name in named:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        assert getattr(message_in(POST, body), "client", None) == name


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


@pytest.mark.long
async def test_calls_in_a_minute_are_bounded_over_http_by_a_flag(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "read-only", "--calls-per-minute", "2")
    with started(setup, "http") as url:
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=url.removesuffix("/mcp"), headers=headers, trust_env=False
        ) as http:
            session = await open_session(http)
            message = call("calculator", 1, expression="1+1")
            answers = [await http.post("/mcp", json=message, headers=session) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) in range(1, 31)


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
