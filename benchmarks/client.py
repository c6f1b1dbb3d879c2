"""The smallest client that speaks MCP over stdio, so that what it costs is the same for every server."""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CLIENT = {"name": "benchmarks", "version": "1"}
CHUNK = 1 << 20
STDERR_SHOWN = 2_000


class Era(Enum):
    """How client and server agree on the protocol: a handshake first, or an envelope on every request."""

    HANDSHAKE = "2025-11-25"
    ENVELOPE = "2026-07-28"


META = {
    "io.modelcontextprotocol/protocolVersion": Era.ENVELOPE.value,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Unanswered(RuntimeError):
    """The server ended, was silent for too long, or answered with an error."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start a server."""

    command: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """The result of a request, and the seconds from its first byte sent to the last byte received."""

    result: dict[str, Any]
    seconds: float

    @property
    def text(self) -> str:
        """All the text blocks of a tool's result."""
        return "\n".join(part["text"] for part in self.result["content"] if part["type"] == "text")


class Client:
    """A running server and the pipe to it. Leaving the context closes its stdin and waits for its end."""

    def __init__(self, launch: Launch, era: Era = Era.HANDSHAKE) -> None:
        self._era = era
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the client
        self._process = subprocess.Popen(
            launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=launch.cwd,
            env=launch.environment,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._readable = select.poll()
        self._readable.register(self._stdout, select.POLLIN | select.POLLHUP)
        self._received = bytearray()
        self._number = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            if self._era is Era.HANDSHAKE:
                opening = {"protocolVersion": self._era.value, "capabilities": {}, "clientInfo": CLIENT}
                self.instructions = str(self.request("initialize", opening).result.get("instructions", ""))
                self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server as clients do: close its stdin, wait, and kill it if that did not help."""
        self._stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._stdout.close()
        self._log.close()

    def hang_up(self) -> None:
        """Close its stdin, as clients do at the end."""
        self._stdin.close()

    def call(self, tool: str, arguments: Mapping[str, Any], *, patience: float = 60.0) -> Answer:
        """Call a tool that is expected to succeed."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments}, patience=patience)
        if answer.result.get("isError"):
            raise Unanswered(f"{tool} failed: {answer.text[:STDERR_SHOWN]}")
        return answer

    def request(self, method: str, params: Mapping[str, Any], *, patience: float = 60.0) -> Answer:
        """Send a request and wait for its answer, at most `patience` seconds."""
        self._number += 1
        if self._era is Era.ENVELOPE:
            params = {**params, "_meta": META}
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        return self._answer(method, self._send(message), patience)

    def answer(self, *, patience: float = 60.0) -> Answer:
        """Wait for the answer to what `begin` sent last, at most `patience` seconds."""
        return self._answer("the last request", time.perf_counter(), patience)

    def _answer(self, method: str, start: float, patience: float) -> Answer:
        while True:
            line = self._line(start + patience)
            end = time.perf_counter()
            received = json.loads(line)
            if received.get("id") != self._number or "method" in received:
                continue
            if "error" in received:
                raise Unanswered(f"{method}: {received['error']}")
            return Answer(received["result"], end - start)

    def begin(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request, in the handshake era, and do not wait for its answer."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})

    def _send(self, message: Mapping[str, Any]) -> float:
        """Send, and give the time of sending; building the text is not counted."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        start = time.perf_counter()
        self._stdin.write(line)
        return start

    def _line(self, deadline: float) -> bytes:
        while (end := self._received.find(b"\n")) < 0:
            left = deadline - time.perf_counter()
            if left <= 0 or not self._readable.poll(left * 1_000):
                raise Unanswered("the server was silent for too long" + self._said())
            chunk = os.read(self._stdout.fileno(), CHUNK)
            if not chunk:
                raise Unanswered("the server ended" + self._said())
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def log(self) -> str:
        """What the server wrote to stderr so far."""
        return os.pread(self._log.fileno(), CHUNK, 0).decode("utf-8", "replace")

    def _said(self) -> str:
        said = self.log()[:STDERR_SHOWN]
        return f"; it said: {said}" if said else ""
