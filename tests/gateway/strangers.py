"""MCP servers that do as a test says, behind the gateway, and the client that talks to them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.app.confinement import broker_policy
from mcp_toolserver.app.wrap import Wrapped
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.gateway.pump import PumpLimits
from mcp_toolserver.protocol.stdio.lines import Lines
from mcp_toolserver.runtime.executables import find_host_executables
from mcp_toolserver.runtime.processes.broker_client import Broker, start_standalone_broker
from mcp_toolserver.settings import Settings

QUICK = PumpLimits(message=1 << 20, answer=1.0, call=1.0, ask=2.0, drain=2.0)
PATIENT = replace(QUICK, answer=20.0, call=20.0)

_SERVER = r"""
import json, os, sys, threading, time

def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def send(**message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

def tool(name="echo", description="Says it again.", **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}

def text(text, **more):
    return {"content": [{"type": "text", "text": text}], **more}

TOOLS = [tool()]
INSTRUCTIONS = "Be kind."

def on_initialize(n, params):
    send(id=n, result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                       "serverInfo": {"name": "stranger", "version": "1"}, "instructions": INSTRUCTIONS})

def on_list(n, params):
    send(id=n, result={"tools": TOOLS})

def on_call(n, params):
    send(id=n, result=text(json.dumps(params.get("arguments"))))

def on_other(n, method, params, message):
    if n is not None and method:
        send(id=n, result={})

exec(BEHAVIOUR)
for line in sys.stdin.buffer:
    message = json.loads(line)
    n, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    known = {"initialize": on_initialize, "tools/list": on_list, "tools/call": on_call}
    known[method](n, params) if method in known else on_other(n, method, params, message)
"""


class Client:
    """What a client says and hears, line by line."""

    def __init__(self) -> None:
        self._said = asyncio.Queue[bytes]()
        self.answers: list[dict[str, Any]] = []
        """Responses, in their order."""
        self.others: list[bytes] = []
        """The last of the other lines, as they came."""
        self.news = anyio.Event()
        self._last = 0

    async def _write(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" in message:
            self.others = [*self.others[-99:], line]
        else:
            self.answers.append(message)
        self.news.set()
        self.news = anyio.Event()

    @property
    def lines(self) -> Lines:
        return Lines(self._said.get, self._write, anyio.sleep_forever)

    def say(self, line: bytes) -> None:
        self._said.put_nowait(line)

    def leave(self) -> None:
        self.say(b"")

    def request(self, method: str, params: object = None, **more: object) -> int:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}, **more}
        self.say(json.dumps(message).encode() + b"\n")
        return self._last

    def notify(self, method: str, **params: object) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    async def answer(self, request: int) -> dict[str, Any]:
        with anyio.fail_after(20):
            while not (found := [one for one in self.answers if one.get("id") == request]):
                await self.news.wait()
        return found[0]

    async def other(self, containing: bytes) -> bytes:
        with anyio.fail_after(20):
            while not (found := [line for line in self.others if containing in line]):
                await self.news.wait()
        return found[0]

    async def ask(self, method: str, params: object = None) -> Any:
        """The result; an error as text."""
        answer = await self.answer(self.request(method, params))
        return answer["error"]["message"] if "error" in answer else answer["result"]

    async def open(self, **capabilities: object) -> Any:
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info}
        return await self.ask("initialize", params)

    async def tools(self) -> dict[str, Any]:
        return {tool["name"]: tool for tool in (await self.ask("tools/list"))["tools"]}

    async def call(self, tool: str = "echo", **arguments: object) -> str:
        """The text of the result, or of the error."""
        result = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        return result if isinstance(result, str) else "\n".join(b.get("text", "") for b in result["content"])


class Place:
    """A root and a state folder, and a broker for them."""

    def __init__(self, folder: Path, mode: Permission, **settings: Any) -> None:
        self.root, self.state = folder / "root", folder / "state"
        self.root.mkdir(exist_ok=True)
        self.settings = Settings(
            permission_mode=mode, root=(str(self.root),), state_dir=str(self.state), **settings
        )
        self._found = find_host_executables(os.environ, self.settings.root)
        self._broker: Broker = start_standalone_broker(broker_policy(self.settings, self._found))

    def close(self) -> None:
        self._broker.close()

    def program(self, name: str, behaviour: str = "") -> list[str]:
        """The command of a server, whose file is written anew."""
        file = self.root / f"{name}.py"
        file.write_text(_SERVER.replace("BEHAVIOUR", repr(behaviour)), encoding="utf-8")
        return [sys.executable, "-I", str(file)]

    @asynccontextmanager
    async def talking(
        self, name: str, behaviour: str = "", *, limits: PumpLimits = PATIENT, **changed: Any
    ) -> AsyncGenerator[Client]:
        """A client of the server `name`; afterwards it leaves."""
        settings, client = replace(self.settings, **changed), Client()
        wrapped = Wrapped(settings, self._broker, self._found, name, self.program(name, behaviour))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wrapped.carry, await wrapped.start(), client.lines, limits)
            yield client
            client.leave()
        wrapped.close()


@contextmanager
def place(folder: Path, mode: Permission = Permission.READ_ONLY, **settings: Any) -> Generator[Place]:
    made = Place(folder, mode, **settings)
    try:
        yield made
    finally:
        made.close()
