"""A Streamable HTTP server in front of servers over stdio: the official suite speaks HTTP only.

It reads of a message what it needs to carry it: whether it is a request, a response or neither, and its id. A
session has a process of its own; requests without one, as in the protocol of 2026-07-28, share one.
"""

import asyncio
import json
import secrets
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

LONGEST_LINE = 1 << 24

META = "io.modelcontextprotocol/"

Stream = asyncio.Queue[bytes]


def _meta(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return (message.get("params") or {}).get("_meta") or {}


class Carrier:
    """Carries messages between the streams of a session and its process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.waiting: dict[str | int, Stream] = {}
        """The streams of requests without a response, by id."""
        self.standing = Stream()
        """What belongs to no request."""
        self._reading = asyncio.create_task(self._read())

    async def send(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.replace(b"\n", b" ") + b"\n")
        await self.process.stdin.drain()

    async def events(self, stream: Stream, last: str | int | None) -> AsyncGenerator[bytes]:
        """The messages of a stream as events, up to the response with the id `last`."""
        try:
            while line := await stream.get():
                yield b"event: message\ndata: " + line.strip() + b"\n\n"
        finally:
            if last is not None and self.waiting.get(last) is stream:
                # A client over HTTP cancels by leaving.
                del self.waiting[last]
                params = {"requestId": last}
                message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                await self.send(json.dumps(message).encode())

    async def _read(self) -> None:
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            stream = None if "method" in message else self.waiting.pop(message.get("id"), None)
            (stream or self._stream_for(message)).put_nowait(line)
            if stream:
                stream.put_nowait(b"")
        for stream in (*self.waiting.values(), self.standing):
            stream.put_nowait(b"")

    def _stream_for(self, message: Mapping[str, Any]) -> Stream:
        """That of the subscription that the message names, else of the last request."""
        subscribed = self.waiting.get(_meta(message).get(f"{META}subscriptionId", ""))
        return subscribed or next(reversed(self.waiting.values()), self.standing)

    async def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), 20)
        if self.process.returncode is None:
            self.process.kill()
        await self._reading


class Bridge:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._sessions: dict[str, Carrier] = {}

    async def serve(self, request: Request) -> Response:
        session = request.headers.get("mcp-session-id", "")
        message = json.loads(await request.body()) if request.method == "POST" else {}
        if message.get("method") == "initialize":
            session = secrets.token_hex(16)
        elif session and session not in self._sessions:
            return Response(status_code=404)
        elif not session and request.method == "POST":
            # Over stdio a process serves one generation of the protocol, which its first message decides.
            session = "stateless" if f"{META}protocolVersion" in _meta(message) else "neither"
        if session not in self._sessions:
            started = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE
            )
            self._sessions[session] = Carrier(started)
        carrier, number = self._sessions[session], message.get("id")
        if request.method == "DELETE":
            await self._sessions.pop(session).close()
            return Response()
        headers = {"Mcp-Session-Id": session} if message.get("method") == "initialize" else {}
        if request.method == "GET":
            return StreamingResponse(carrier.events(carrier.standing, None), media_type="text/event-stream")
        if "method" not in message or number is None:
            await carrier.send(await request.body())
            return Response(status_code=202)
        stream = carrier.waiting[number] = Stream()
        await carrier.send(await request.body())
        return StreamingResponse(carrier.events(stream, number), 200, headers, "text/event-stream")

    async def close(self) -> None:
        await asyncio.gather(*(carrier.close() for carrier in self._sessions.values()))


@asynccontextmanager
async def bridged(command: Sequence[str]) -> AsyncGenerator[str]:
    """The address at which servers that `command` starts are reached."""
    bridge = Bridge(command)
    route = Route("/mcp", bridge.serve, methods=["GET", "POST", "DELETE"])
    config = uvicorn.Config(Starlette(routes=[route]), log_level="error", timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            await bridge.close()
            server.should_exit = True
            await serving
