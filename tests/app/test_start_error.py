"""Invalid settings reach the user of the client: the server answers its first request with the reason."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, ClientSession, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp_toolserver.protocol.stdio import start_error
from tests import ROOT
from tests.support.http_server import INITIALIZE
from tests.support.process_layer import ran, server_command

REASON = "the root is gone"
HELLO = {**INITIALIZE, "id": "first"}
DISCOVER = {"jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": {}}


class Wire:
    """Two pipes: a client's messages and the answers to them. The client waits."""

    def __init__(self) -> None:
        self.source, self.client = os.pipe()
        self.answers, self.target = os.pipe()

    def close(self, *ends: str) -> None:
        """Close these ends, or all that are open."""
        for name in ends or ("source", "target", "client", "answers"):
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def send(self, *lines: str | dict[str, Any]) -> None:
        for line in lines:
            text = line if isinstance(line, str) else json.dumps(line)
            os.write(self.client, f"{text}\n".encode())

    def answered(self, seconds: float = 60) -> list[dict[str, Any]]:
        start_error.answer(REASON, source=self.source, target=self.target, seconds=seconds)
        self.close("target")
        with os.fdopen(self.answers, "rb", closefd=False) as file:
            return [json.loads(line) for line in file]


@pytest.fixture
def wire() -> Generator[Wire]:
    made = Wire()
    yield made
    made.close()


def refused(request_id: str | int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32603, "message": REASON}}


def test_the_first_request_is_answered_and_nothing_after_it(wire: Wire) -> None:
    # Answers of the client are passed over.
    answers = ({"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 1, "error": {}})
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    wire.send("", note, *answers, HELLO, {**HELLO, "id": 2})
    assert wire.answered() == [refused("first")]


def test_a_client_that_probes_with_discover_gets_the_reason_for_its_handshake_too(wire: Wire) -> None:
    wire.send(DISCOVER, HELLO)
    assert wire.answered() == [refused(7), refused("first")]


INVALID: Mapping[str, tuple[str, int]] = {
    "json": ("{", -32700),
    "text": ("\x80", -32700),
    "nested": ("[" * 100_000, -32700),
    "batch": (json.dumps([HELLO]), -32600),
    "number": ("3", -32600),
    "true": (json.dumps({**HELLO, "id": True}), -32600),
    "null": (json.dumps({**HELLO, "id": None}), -32600),
    "float": (json.dumps({**HELLO, "id": 1.5}), -32600),
    "list": (json.dumps({**HELLO, "id": [1]}), -32600),
    "method": (json.dumps({**HELLO, "method": 1}), -32600),
    "empty": ("{}", -32600),
}


def read_to_its_end(folder: Path, content: bytes) -> list[dict[str, Any]]:
    source, target = folder / "source", folder / "target"
    source.write_bytes(content)
    with source.open("rb") as reader, target.open("wb") as writer:
        start_error.answer(REASON, source=reader.fileno(), target=writer.fileno())
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


def test_an_invalid_line_gets_its_error_and_the_next_request_the_reason(tmp_path: Path) -> None:
    for name, (line, code) in INVALID.items():
        invalid, answer = read_to_its_end(tmp_path, f"{line}\n{json.dumps(HELLO)}".encode("latin-1"))
        assert (invalid["id"], invalid["error"]["code"]) == (None, code), name
        assert answer == refused("first"), name


def test_a_line_that_never_ends_is_read_up_to_a_limit(tmp_path: Path) -> None:
    line = b'"' + b"x" * (start_error.LONGEST + 2**17) + b'"\n'
    (answer,) = read_to_its_end(tmp_path, line + json.dumps(HELLO).encode())
    assert answer["error"]["code"] == -32700


def test_a_client_that_sends_nothing_is_left_after_some_time(wire: Wire) -> None:
    assert wire.answered(seconds=0.01) == []


def test_a_client_that_does_not_read_is_left_after_some_time(wire: Wire) -> None:
    wire.send(HELLO)
    os.set_blocking(wire.target, False)
    with suppress(BlockingIOError):
        while True:
            os.write(wire.target, b"\n")
    os.set_blocking(wire.target, True)
    start_error.answer(REASON, source=wire.source, target=wire.target, seconds=0.01)
    wire.close("answers")
    wire.send(HELLO)
    start_error.answer(REASON, source=wire.source, target=wire.target)


def environment(home: Path, **more: str) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MCP_TOOLSERVER_")}
    return {**environ, "HOME": str(home), **more}


def started(*arguments: str, home: Path, stdin: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return ran([*server_command(), *arguments], env=environment(home, **environ), stdin=stdin)


def test_the_client_gets_the_message_of_standard_error(tmp_path: Path) -> None:
    for says, arguments in (
        ("no-such-folder", ["--root", "no-such-folder"]),
        # Found when the server is composed, after the kernel has confined it.
        ("read_file", ["--root", ".", "--tools", "reed"]),
    ):
        ended = started(*arguments, home=tmp_path, stdin=json.dumps(HELLO) + "\n")
        assert ended.returncode == 2
        answer = json.loads(ended.stdout)
        assert answer["id"] == "first"
        assert says in answer["error"]["message"]
        assert ended.stderr == f"mcp-toolserver: {answer['error']['message']}\n"


def test_what_does_not_serve_over_stdio_answers_nobody(tmp_path: Path) -> None:
    for says, arguments, environ in (
        ("foo", ["--permission-mode", "foo"], {"MCP_TOOLSERVER_TRANSPORT": "http"}),
        ("foo", ["tools", "--permission-mode", "foo"], {}),
    ):
        ended = started(*arguments, home=tmp_path, stdin=json.dumps(HELLO) + "\n", **environ)
        assert (ended.returncode, ended.stdout) == (2, ""), arguments
        assert ended.stderr.startswith("mcp-toolserver: "), arguments
        assert says in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_script_without_a_client_gets_the_status(tmp_path: Path) -> None:
    for redirection in ("<&-", "</dev/null >&-"):
        script = f'exec "$0" -m mcp_toolserver --permission-mode foo {redirection}'
        ended = ran(["/bin/sh", "-c", script, sys.executable], env=environment(tmp_path))
        assert (ended.returncode, ended.stdout) == (2, ""), redirection
        assert "danger-full-access" in ended.stderr, redirection


async def test_the_official_client_shows_the_message_to_its_user(tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mcp_toolserver", "--permission-mode", "foo"],
        env=environment(tmp_path),
        cwd=ROOT,
    )
    with anyio.fail_after(60), open(os.devnull, "w", encoding="utf-8") as nothing:
        async with stdio_client(server, errlog=nothing) as streams, ClientSession(*streams) as session:
            with pytest.raises(MCPError, match="'foo' is none of read-only"):
                await session.initialize()
        # This one probes with server/discover first.
        shown = pytest.RaisesExc(MCPError, match="'foo' is none of read-only")
        with pytest.RaisesGroup(shown, flatten_subgroups=True):
            async with Client(stdio_client(server, errlog=nothing)):
                pass
