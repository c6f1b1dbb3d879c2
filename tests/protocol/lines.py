"""Servers on stdio whose lines the test writes itself, in both eras."""

import json
import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as mcp

from tests.support.families import mentioning
from tests.support.http_server import INITIALIZE, MODERN
from tests.support.live import Setup
from tests.support.processes import until

READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENVELOPE = {"_meta": {mcp.PROTOCOL_VERSION_META_KEY: MODERN, mcp.CLIENT_CAPABILITIES_META_KEY: {}}}
"""The parameters that every request has without a handshake."""


def opening(era: str) -> list[Mapping[str, Any]]:
    """What a client of this era sends first."""
    discover = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": ENVELOPE}
    return [INITIALIZE, READY] if era == "legacy" else [discover]


def call(tool: str, number: int = 2, *, era: str = "legacy", **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, **(ENVELOPE if era == "auto" else {})}
    return {"id": number, "method": "tools/call", "params": params}


@dataclass
class Running:
    """A server whose process is ours, not a client's."""

    process: subprocess.Popen[bytes]
    setup: Setup
    ends: list[int] = field(default_factory=list[int])
    """Our ends of its streams: to it, and from it if that is a pipe."""

    def say(self, *messages: Mapping[str, Any]) -> None:
        for message in messages:
            os.write(self.ends[0], json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    @property
    def said(self) -> str:
        """What it wrote for people."""
        return (self.setup.home / "stderr").read_text(encoding="utf-8")

    async def first_answer(self) -> None:
        await anyio.to_thread.run_sync(os.read, self.ends[1], 1 << 16)

    def close(self, *ends: int) -> None:
        for end in ends:
            with suppress(ValueError, OSError):
                self.ends.remove(end)
                os.close(end)

    async def ended(self) -> int:
        """Its exit status, once it and all of its processes are gone."""
        await until(lambda: self.process.poll() is not None)
        await until(lambda: not mentioning(str(self.setup.home)))
        return self.process.returncode


@contextmanager
def running(setup: Setup, streams: tuple[int, int], ends: list[int], *flags: str) -> Generator[Running]:
    with (setup.home / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*setup.command, *flags],
            env=setup.environment,
            stdin=streams[0],
            stdout=streams[1],
            stderr=errors,
        )
    for stream in set(streams):
        os.close(stream)
    found = Running(process, setup, ends)
    try:
        yield found
    finally:
        process.kill()
        process.wait(timeout=10)
        found.close(*ends)


def on_pipes(setup: Setup) -> AbstractContextManager[Running]:
    stdin, to_server = os.pipe()
    from_server, stdout = os.pipe()
    return running(setup, (stdin, stdout), [to_server, from_server])


def spoken(setup: Setup, *messages: Mapping[str, Any], files: bool = False) -> list[bytes]:
    """The lines that a server of its own answers to these messages, over pipes or over files."""
    source, target = setup.home / "requests", setup.home / "answers"
    source.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    with source.open("rb") as given, target.open("wb") as taken:
        if files:
            streams: dict[str, Any] = {"stdin": given, "stdout": taken}
        else:
            streams = {"input": given.read(), "stdout": subprocess.PIPE}
        done = subprocess.run(setup.command, env=setup.environment, timeout=60, check=True, **streams)
    return (target.read_bytes() if files else done.stdout).splitlines()
