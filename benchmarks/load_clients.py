"""Many clients at once over Streamable HTTP: `python -m benchmarks.load_clients PLAN`.

They are a process of their own and speak HTTP by hand, each over one connection that it keeps, so that they
cost less than the server that they ask. Every second one shakes hands; the others put an envelope on each
call. Prints what they saw as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from benchmarks.client import CLIENT, META, Era

PATIENCE = 120.0
"""Seconds for one answer; a server that needs longer counts as one that failed."""

READS_PER_GREP = 4

_ACCEPT = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who asks for what, and for how long."""

    port: int
    token: str
    clients: int
    seconds: float
    files: list[str]
    patterns: list[str]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What all clients saw together."""

    seconds: list[list[float]]
    """Of the calls that were answered, by client."""
    errors: list[str]


class Failed(Exception):
    """The server refused, or answered with an error."""


class Wire:
    """One connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head
        self.session = ""

    async def ask(self, message: Mapping[str, Any], more: str = "") -> dict[str, Any]:
        """Post a message; the answer, or nothing for what needs none."""
        body = json.dumps(message, separators=(",", ":")).encode()
        head = f"{self._head}{more}{self.session}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        status, fields, data = await self._response()
        if opened := fields.get("mcp-session-id"):
            version = Era.HANDSHAKE.value
            self.session = f"Mcp-Session-Id: {opened}\r\nMcp-Protocol-Version: {version}\r\n"
        if status == 202:
            return {}
        answer = _message(data)
        if status != 200 or "error" in answer:
            raise Failed(f"{status}: {answer.get('error', data[:200])}")
        return answer["result"]

    async def _response(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        fields = {name.lower(): value.strip() for name, _, value in pairs}
        if fields.get("transfer-encoding") == "chunked":
            data = b"".join([chunk async for chunk in self._chunks()])
        else:
            data = await self._reader.readexactly(int(fields.get("content-length", "0")))
        return int(head[0].split(" ", 2)[1]), fields, data

    async def _chunks(self) -> AsyncGenerator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()


def _message(data: bytes) -> dict[str, Any]:
    """The JSON in a response, or in the last event of one that is a stream."""
    events = [line for line in data.split(b"\n") if line.startswith(b"data: {")]
    return json.loads(events[-1].removeprefix(b"data: ") if events else data or b"{}")


async def client(plan: Plan, number: int, end: float, seen: Seen) -> None:
    """One client: connects, then calls until the end."""
    era = (Era.HANDSHAKE, Era.ENVELOPE)[number % 2]
    try:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", plan.port, limit=1 << 22), _head(plan))
        if era is Era.HANDSHAKE:
            opening = {"protocolVersion": era.value, "capabilities": {}, "clientInfo": _named(number)}
            await wire.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening})
            await wire.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for call_id in count(1):
            name, arguments = _chosen(plan, number, call_id)
            begun = time.perf_counter()
            if begun >= end:
                return
            async with asyncio.timeout(PATIENCE):
                result = await _called(wire, era, number, call_id, {"name": name, "arguments": arguments})
            if result.get("isError"):
                raise Failed(f"{name}: {result['content'][0]['text'][:200]}")
            seen.seconds[number].append(time.perf_counter() - begun)
    except (Failed, OSError, EOFError, TimeoutError, ValueError) as error:
        seen.errors.append(f"{era.value}: {type(error).__name__} {error}"[:300])


async def _called(wire: Wire, era: Era, number: int, call_id: int, params: dict[str, Any]) -> dict[str, Any]:
    more = ""
    if era is Era.ENVELOPE:
        params["_meta"] = {**META, "io.modelcontextprotocol/clientInfo": _named(number)}
        more = (
            f"Mcp-Protocol-Version: {era.value}\r\nMcp-Method: tools/call\r\nMcp-Name: {params['name']}\r\n"
        )
    message = {"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": params}
    return await wire.ask(message, more)


def _named(number: int) -> dict[str, str]:
    return {**CLIENT, "name": f"{CLIENT['name']}-{number}"}


def _head(plan: Plan) -> str:
    host = f"Host: 127.0.0.1:{plan.port}\r\n"
    return f"POST /mcp HTTP/1.1\r\n{host}Authorization: Bearer {plan.token}\r\n{_ACCEPT}"


def _chosen(plan: Plan, number: int, call_id: int) -> tuple[str, dict[str, Any]]:
    """The client's next call: some files, then a pattern, each client at another place of the lists."""
    turn, step = divmod(number + call_id, READS_PER_GREP + 1)
    if step == READS_PER_GREP:
        pattern = plan.patterns[(number + turn) % len(plan.patterns)]
        return "grep_search", {"pattern": pattern, "output_mode": "content"}
    return "read_file", {"path": plan.files[(number * 31 + call_id) % len(plan.files)]}


async def run(plan: Plan) -> Seen:
    """All clients at once."""
    seen = Seen(seconds=[[] for _ in range(plan.clients)], errors=[])
    end = time.perf_counter() + plan.seconds
    async with asyncio.TaskGroup() as clients:
        for number in range(plan.clients):
            clients.create_task(client(plan, number, end, seen))
    return seen


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(run(Plan(**json.loads(sys.argv[1])))))))
