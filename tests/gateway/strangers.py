"""MCP servers that do as a test says, behind the gateway, and a client that says and hears lines."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.confinement import broker_policy
from mcp_toolserver.app.upstreams import start_upstreams
from mcp_toolserver.app.wrap import Wrapped
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.gateway.pump import PumpLimits
from mcp_toolserver.protocol.stdio.lines import Lines
from mcp_toolserver.runtime.executables import find_host_executables
from mcp_toolserver.settings import Settings
from tests.support.broker_forks import start_broker

QUICK = PumpLimits(message=1 << 20, answer=1.0, call=1.0, ask=2.0, drain=2.0)
PATIENT = replace(QUICK, answer=20.0, call=20.0)

_SERVER = r"""
import json, os, sys, threading, time
def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def send(**message): raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
def tool(name="echo", description="Says it again.", **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}
def text(text, **more): return {"content": [{"type": "text", "text": text}], **more}
TOOLS, INSTRUCTIONS = [tool()], "Be kind."
def on_initialize(n, params):
    send(id=n, result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                       "serverInfo": {"name": "stranger", "version": "1"}, "instructions": INSTRUCTIONS})
def on_list(n, params): send(id=n, result={"tools": TOOLS})
def on_call(n, params): send(id=n, result=text(json.dumps(params.get("arguments"))))
def on_other(n, method, params, message):
    if n is not None and method: send(id=n, result={})
exec(BEHAVIOUR)
for line in sys.stdin.buffer:
    message = json.loads(line)
    n, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    known = {"initialize": on_initialize, "tools/list": on_list, "tools/call": on_call}
    known[method](n, params) if method in known else on_other(n, method, params, message)
"""


def program(behaviour: str) -> str:
    """The program of a server that does so."""
    return _SERVER.replace("BEHAVIOUR", repr(behaviour))


class Client:
    def __init__(self) -> None:
        self._said, self._news = asyncio.Queue[bytes](), asyncio.Event()
        self.say = self._said.put_nowait
        self.answers: list[dict[str, Any]] = []
        self.others: list[bytes] = []
        """The last lines that are no response, as they came."""
        self._last = 0
        self.lines = Lines(self._said.get, self._hear, anyio.sleep_forever)

    async def _hear(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" in message:
            self.others = [*self.others[-99:], line]
        else:
            self.answers.append(message)
        self._news.set()

    def send(self, **message: object) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def request(self, method: str, params: object = None) -> int:
        self._last += 1
        self.send(id=self._last, method=method, params=params or {})
        return self._last

    async def answer(self, request: int | str) -> dict[str, Any]:
        with anyio.fail_after(25):
            while not (found := [one for one in self.answers if one.get("id") == request]):
                self._news.clear()
                await self._news.wait()
        return found[0]

    async def question(self) -> Any:
        """The next request or notification of the server."""
        with anyio.fail_after(25):
            while not self.others:
                self._news.clear()
                await self._news.wait()
        return json.loads(self.others.pop(0))

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
    """A root and a state folder, and a broker for them, to be closed."""

    def __init__(self, folder: Path, mode: Permission = Permission.READ_ONLY, **settings: Any) -> None:
        self.root, self.state = folder / "root", folder / "state"
        self.root.mkdir(parents=True)
        roots, state = (str(self.root),), str(self.state)
        self.settings = Settings(permission_mode=mode, root=roots, state_dir=state, **settings)
        self.found = find_host_executables(os.environ, roots)
        self.broker = start_broker(broker_policy(self.settings, self.found))

    @asynccontextmanager
    async def talking(
        self, name: str, behaviour: str = "", *, limits: PumpLimits = PATIENT, **changed: Any
    ) -> AsyncGenerator[Client]:
        """A client of the server `name`; afterwards it leaves."""
        file, client = self.root / f"{name}.py", Client()
        file.write_text(program(behaviour), encoding="utf-8")
        command = [sys.executable, "-I", str(file)]
        wrapped = Wrapped(replace(self.settings, **changed), self.broker, self.found, name, command)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wrapped.carry, await wrapped.start(), client.lines, limits)
            yield client
            client.say(b"")
        wrapped.close()


@asynccontextmanager
async def upstreams(
    at: Place, servers: Mapping[str, str | Mapping[str, Any]], **changed: Any
) -> AsyncGenerator[Application]:
    """An application with upstream servers: strangers of these behaviours, or entries of the file."""
    entries = {name: _entry(at, name, one) for name, one in servers.items()}
    file = at.state.parent / "servers.json"
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    settings = replace(at.settings, upstreams=str(file), toolsets=("gateway", "search"), **changed)
    # All are confined alike, so one broker does for all.
    hosts = start_upstreams(settings, at.found, os.environ, lambda _: at.broker)
    app = build_application(settings, None, at.found, held_by=0, upstreams=hosts)
    try:
        yield app
    finally:
        await app.end()
        app.record()


def _entry(at: Place, name: str, one: str | Mapping[str, Any]) -> Mapping[str, Any]:
    behaviour = one if isinstance(one, str) else one.get("behaviour", "")
    given = {} if isinstance(one, str) else {key: one[key] for key in one if key != "behaviour"}
    if "url" in given:
        return given
    file = at.root / f"{name}.py"
    file.write_text(program(behaviour), encoding="utf-8")
    return {
        "command": sys.executable,
        "args": ["-I", str(file)],
        "mode": at.settings.permission_mode.flag,
        **given,
    }
