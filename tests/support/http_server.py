"""A small server over real HTTP on loopback, and ways to talk to it, polite and not."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcp_toolserver.protocol.http.gate import HttpOptions
from mcp_toolserver.protocol.http.server import bind, serve_http

TOKEN = "an-unguessable-token-for-the-tests"
LEGACY, MODERN = "2025-11-25", "2026-07-28"
Context = ServerRequestContext[Any, Any]


@dataclass
class Calls:
    running: int = 0
    cancelled: int = 0
    release: anyio.Event = field(default_factory=anyio.Event)
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """What the last handler saw of its request."""

    async def until(self, *, running: int | None = None, cancelled: int | None = None) -> None:
        """Wait, bounded, for these counts."""
        with anyio.fail_after(5):
            while running not in (None, self.running) or cancelled not in (None, self.cancelled):
                await anyio.lowlevel.checkpoint()


@dataclass
class Running:
    url: str
    calls: Calls
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 80

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def http(self, **headers: str) -> httpx.AsyncClient:
        return http_client(f"{self.base}/mcp", TOKEN, **headers)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes and read until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            with anyio.fail_after(10):
                return await read_all(reader)
        finally:
            writer.close()

    def head(self, method: str = "POST", target: str = "/mcp", **headers: str) -> bytes:
        """The head of a good request, or of one that differs where `headers` say; empty removes one."""
        fields = {
            "Host": f"127.0.0.1:{self.port}",
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [
            f"{method} {target} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items() if value),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def http_client(url: str, token: str, **headers: str) -> httpx.AsyncClient:
    """A client of the server with this address."""
    given, base = {"authorization": f"Bearer {token}", **headers}, url.rpartition("/")[0]
    return httpx.AsyncClient(base_url=base, headers=given, timeout=20, trust_env=False)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Everything until the other side ends the connection, in whichever way."""
    chunks: list[bytes] = []
    try:
        while chunk := await reader.read(65536):
            chunks.append(chunk)
    except ConnectionError:
        pass
    return b"".join(chunks)


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def tiny_server(calls: Calls) -> Server[Any]:
    """Two tools: `echo` answers, `wait` runs until it is cancelled or released."""

    async def list_tools(_: Context, __: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
        schema = {"type": "object"}
        return mcp.ListToolsResult(
            tools=[mcp.Tool(name=name, input_schema=schema) for name in ("echo", "wait")]
        )

    async def call_tool(context: Context, params: mcp.CallToolRequestParams) -> mcp.CallToolResult:
        calls.headers = dict(context.request.headers) if context.request is not None else {}
        await context.session.report_progress(1, message="on its way")
        if params.name == "wait":
            await wait()
        elif params.name != "echo":
            raise MCPError(mcp.INVALID_PARAMS, "Unknown tool")
        text = str((params.arguments or {}).get("text", ""))
        return mcp.CallToolResult(content=[mcp.TextContent(type="text", text=text)])

    async def wait() -> None:
        calls.running += 1
        try:
            await calls.release.wait()
        except BaseException:
            calls.cancelled += 1
            raise
        finally:
            calls.running -= 1

    return Server("tiny", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


@asynccontextmanager
async def serving(
    *, sse: bool = False, server: Server[Any] | None = None, **options: Any
) -> AsyncGenerator[Running, None]:
    """The tiny server, or another, up while the context is open."""
    calls = Calls()
    port = options.pop("port", 0)
    settings = HttpOptions(**{"host": "127.0.0.1", "token": TOKEN, **options})
    sockets = bind(settings.host, port)
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    served = serve_http(server or tiny_server(calls), settings, sockets, sse=sse, started=up.set_result)
    task = asyncio.create_task(served)
    try:
        await asyncio.wait((task, up), timeout=5, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield Running(url=up.result(), calls=calls, task=task)
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=10)
        assert task.done()


def call(name: str, request_id: int | str = 1, **arguments: str) -> dict[str, Any]:
    """A handshake-era call."""
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def modern(name: str, request_id: int | str = 1, **arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A modern call with the headers that go with it."""
    message = call(name, request_id, **arguments)
    message["params"]["_meta"] = {
        mcp.PROTOCOL_VERSION_META_KEY: MODERN,
        mcp.CLIENT_CAPABILITIES_META_KEY: {},
    }
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": name, **ACCEPT}
    return message, headers


ACCEPT = {"accept": "application/json, text/event-stream"}

INITIALIZE: Mapping[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def open_session(http: httpx.AsyncClient) -> dict[str, str]:
    """Shake hands; the headers for what follows in the session."""
    answer = await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)
    assert answer.status_code == 200, answer.text
    session = {**ACCEPT, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await http.post("/mcp", json=ready, headers=session)).status_code == 202
    return session


def body_of(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


@dataclass
class SseSession:
    http: httpx.AsyncClient
    events: AsyncIterator[str]
    """The data of the stream's events."""
    url: str

    async def post(self, message: Mapping[str, Any]) -> int:
        """Post a message; the status of the acknowledgement."""
        return (await self.http.post(self.url, json=message)).status_code

    async def answer(self) -> dict[str, Any]:
        """The next message from the server."""
        with anyio.fail_after(5):
            return json.loads(await anext(self.events))


@asynccontextmanager
async def sse_session(http: httpx.AsyncClient) -> AsyncGenerator[SseSession, None]:
    """A session of the legacy transport after its handshake."""
    async with http.stream("GET", "/sse") as stream:
        assert stream.status_code == 200
        events = (
            line.removeprefix("data: ") async for line in stream.aiter_lines() if line.startswith("data: ")
        )
        session = SseSession(http, events, await anext(events))
        assert await session.post(INITIALIZE) == 202
        assert (await session.answer())["id"] == 0
        assert await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        yield session
