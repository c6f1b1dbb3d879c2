"""Nothing is kept of sessions, calls and clients that are gone: objects are counted, not memory."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import mcp_types as mcp
import pytest
from mcp import Client

from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.rate_limit import RequestLimits
from tests.support.extent import rounds
from tests.support.http_server import (
    Running,
    body_of,
    call,
    modern,
    open_session,
    serving,
    sse_session,
)
from tests.support.workbench import Args, Output, Runtime, dispatcher, machine, tool

OURS = ("mcp", "anyio", "starlette", "sse_starlette", "uvicorn", "h11", "_asyncio", "asyncio.selector_events")
"""Whose objects are counted. The event loop's timers are not: it sweeps up cancelled ones in its time."""

WARM_UP, ROUNDS = 3, rounds(10, 25)
FEW = 2 * ROUNDS // 5
"""What may be there once more at one time than at another: less than one for every second round."""


class Word(Args):
    word: str = ""


async def echo(args: Word, rt: Runtime) -> Output:
    await rt.report("on its way")
    return Output(args.word)


async def stay(_: Args, __: Runtime) -> Output:
    await anyio.sleep_forever()
    raise AssertionError


def handlers(folder: Path) -> Handlers:
    entries = tool(echo, Word, name="echo"), tool(stay, name="stay")
    return Handlers(dispatcher=dispatcher(machine(folder), *entries, allow=[]), ask_seconds=5)


def counted() -> Counter[str]:
    """The objects of the protocol and of the event loop, by type."""
    gc.collect()
    types = (type(found) for found in gc.get_objects())
    # A library may have made its module's name a property.
    named = ((kind, kind.__module__) for kind in types if isinstance(kind.__module__, str))
    return Counter(f"{module}.{kind.__qualname__}" for kind, module in named if module.startswith(OURS))


async def left_by(round_: Callable[[], Awaitable[None]], server: Running) -> Counter[str]:
    """What many rounds leave behind, once a few have warmed up."""
    for _ in range(WARM_UP):
        await round_()
    before = counted()
    for _ in range(ROUNDS):
        await round_()
    return await settled(server, before)


async def settled(server: Running, before: Counter[str]) -> Counter[str]:
    """What there is more than before, once the last connections have wound down."""
    more = counted() - before
    with anyio.move_on_after(5):
        while more and max(more.values()) > FEW:
            await asyncio.wait((server.task,), timeout=0.2)
            more = counted() - before
    return Counter({name: count for name, count in more.items() if count > FEW})


async def in_session(server: Running, http: httpx.AsyncClient) -> None:
    """A session with a call, a call that its client leaves, and an end."""
    session = await open_session(http)
    assert (await http.post("/mcp", json=call("echo", word="x"), headers=session)).status_code == 200
    level = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "error"}}
    await http.post("/mcp", json=level, headers=session)
    await left(server, call("stay", 3), session)
    assert (await http.delete("/mcp", headers=session)).status_code == 200


async def without(server: Running, http: httpx.AsyncClient) -> None:
    """Calls without a session: one that is answered, one that is refused, one that its client leaves."""
    for name in ("echo", "nothing"):
        message, headers = modern(name, word="x")
        await http.post("/mcp", json=message, headers=headers)
    await left(server, *modern("stay"))


async def left(server: Running, message: dict[str, Any], headers: dict[str, str]) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = body_of(message)
    given = {name.replace("-", "_"): value for name, value in headers.items()}
    writer.write(server.head(content_length=str(len(body)), **given) + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


@pytest.mark.rounds
async def test_sessions_and_calls_over_http_leave_nothing_behind(tmp_path: Path) -> None:
    served = handlers(tmp_path)
    limits = RequestLimits(requests=8, of_one=4, per_minute=100_000)
    async with serving(server=ToolServer(served, "hello"), limits=limits) as server:

        async def round_() -> None:
            async with server.http() as http:
                await in_session(server, http)
                await without(server, http)

        found = await left_by(round_, server)
    assert found == {}


@pytest.mark.rounds
async def test_streams_of_the_legacy_transport_leave_nothing_behind(tmp_path: Path) -> None:
    async with serving(sse=True, server=ToolServer(handlers(tmp_path), "hello")) as server:

        async def round_() -> None:
            async with server.http() as http, sse_session(http) as session:
                await session.post(call("echo", 1, word="x"))
                assert (await session.answer())["id"] == 1
                await session.post(call("stay", 2))

        found = await left_by(round_, server)
    assert found == {}


async def test_what_is_known_of_clients_ends_with_them(tmp_path: Path) -> None:
    served = handlers(tmp_path)
    asked = 0

    async def roots(context: Any) -> mcp.ListRootsResult:
        nonlocal asked
        asked += 1
        return mcp.ListRootsResult(roots=[])

    server = ToolServer(served, "hello")
    for _ in range(4):
        async with Client(server, mode="legacy", list_roots_callback=roots) as client:
            await client.call_tool("echo", {})
            before = len(weakref.finalize._registry)  # type: ignore[attr-defined]
            for _ in range(8):
                await client.session.send_roots_list_changed()
                await client.call_tool("echo", {})
            # Its roots changed again and again, and it is watched once.
            assert len(weakref.finalize._registry) <= before + 5  # type: ignore[attr-defined]
    gc.collect()
    assert asked == 36
    assert served.dispatcher.slots.reads.clients == 0
