"""JSON-RPC over pipes, terminals and files: every line gets a message or an answer; nothing is endless."""

import json
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from mcp_toolserver.protocol.stdio import lines
from mcp_toolserver.protocol.stdio.streams import LineReader, LineWriter, on_lines


@dataclass
class Wire:
    """The server's streams, and the client's ends of the pipes."""

    reader: LineReader
    writer: LineWriter
    to_server: int
    from_server: int

    def say(self, *lines: str | bytes) -> None:
        for line in lines:
            os.write(self.to_server, line.encode() if isinstance(line, str) else line)

    def hang_up(self) -> None:
        os.close(self.to_server)

    async def heard(self) -> Any:
        return json.loads(await anyio.to_thread.run_sync(os.read, self.from_server, 65536))

    async def names(self) -> list[str]:
        """The methods of the messages until the end."""
        found: list[str] = []
        async for item in self.reader:
            assert isinstance(item.message, JSONRPCRequest | JSONRPCNotification)
            found.append(item.message.method)
        return found


@asynccontextmanager
async def wired() -> AsyncGenerator[Wire]:
    source, to_server = os.pipe()
    from_server, target = os.pipe()
    reader, writer = on_lines(await lines.open_pipes(source, target))
    with anyio.fail_after(10):
        yield Wire(reader, writer, to_server, from_server)
    async with reader, writer:
        pass
    for descriptor in (to_server, from_server):
        with suppress(OSError):
            os.close(descriptor)


def request(method: str, number: int = 1, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


async def test_every_line_is_a_message_and_the_end_of_input_is_the_end() -> None:
    async with wired() as wire:
        wire.say(request("one"), request("two"), "\n", request("three").rstrip("\n"))
        wire.hang_up()
        assert await wire.names() == ["one", "two", "three"]


NO_MESSAGES: Mapping[str, tuple[str | bytes, int | str | None, int]] = {
    "garbage": ("this is no JSON", None, -32700),
    "no-message": ('{"jsonrpc": "2.0"}', None, -32700),
    "JSON03": ('{"jsonrpc": "2.0", "id": ' + "9" * 5000 + ', "method": "x"}', None, -32700),
    "JSON14": ("[" + request("one").rstrip("\n") + "]", None, -32600),
    "not-utf-8": (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', None, -32700),
    "JSON-surrogate": (r'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"\ud800"}}', 7, -32600),
    "text-id": (r'{"jsonrpc":"2.0","id":"s","method":"x","params":{"a":"\udfff"}}', "s", -32600),
    "other-version": ('{"jsonrpc":"1.0","id":7,"method":"x"}', 7, -32600),
    "no-id": ('{"jsonrpc":"1.0","id":true,"method":"x"}', None, -32700),
    "an-id-that-cannot-be-sent": (r'{"jsonrpc":"1.0","id":"\ud800","method":"x"}', None, -32700),
}
"""By case a line, and the id and the code of the answer."""


async def test_what_is_no_message_is_answered_by_its_id_and_the_next_is_read() -> None:
    found: dict[str, tuple[object, object]] = {}
    for name, (line, _, _) in NO_MESSAGES.items():
        async with wired() as wire:
            wire.say(line, "\n", request("next"))
            wire.hang_up()
            assert await wire.names() == ["next"], name
            answer = await wire.heard()
            found[name] = answer["id"], answer["error"]["code"]
    assert found == {name: (request_id, code) for name, (_, request_id, code) in NO_MESSAGES.items()}


async def test_a_message_that_is_too_long_is_refused_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 1000)
    async with wired() as wire:
        wire.say("x" * 5000, "\n", request("next"), "x" * 5000)
        wire.hang_up()
        assert await wire.names() == ["next"]
        answers = (await anyio.to_thread.run_sync(os.read, wire.from_server, 65536)).splitlines()
        assert [json.loads(answer)["error"]["code"] for answer in answers] == [-32600, -32600]


async def test_the_writer_waits_while_the_client_does_not_read() -> None:
    async with wired() as wire:
        sent = 0
        with anyio.move_on_after(0.2):
            for _ in range(100):
                await wire.writer.send(note("x" * 100_000))
                sent += 1
        assert sent < 100


async def test_a_client_that_does_not_listen_any_more_closes_the_stream() -> None:
    async with wired() as wire:
        os.close(wire.from_server)
        with pytest.raises(anyio.ClosedResourceError):  # noqa: PT012  which of the messages fails is open
            while True:
                await wire.writer.send(note())
                await anyio.sleep(0)


def note(text: str = "") -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": text}))


@contextmanager
def reading(source: int) -> Generator[tuple[LineReader, LineWriter]]:
    """The streams over `source` and nothing."""
    target = os.open(os.devnull, os.O_WRONLY)
    try:
        yield on_lines(lines.open_files(source, target))
    finally:
        for descriptor in (source, target):
            os.close(descriptor)


async def test_a_line_that_is_too_long_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 8)
    (tmp_path / "lines").write_bytes(b"x" * 20 + b"\n" + b"y" * 7 + b"\n" + b"z" * 9)
    with reading(os.open(tmp_path / "lines", os.O_RDONLY)) as (reader, _):
        assert [await reader.line() for _ in range(4)] == [None, b"y" * 7 + b"\n", None, b""]


@pytest.mark.parametrize("error", [False, True], ids=["end", "error"])
async def test_what_can_be_read_no_more_is_at_its_end(error: bool) -> None:
    ours, theirs = os.openpty()
    os.close(ours)
    if error:
        os.close(theirs)
        # Nothing lies at its start, which is an error of the device.
        theirs = os.open("/proc/self/mem", os.O_RDONLY)
    with reading(theirs) as (reader, _):
        assert [message async for message in reader] == []


async def test_a_terminal_is_not_read_on_after_its_end_of_input() -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"\x04")
    with reading(theirs) as (reader, _), anyio.fail_after(10):
        assert [message async for message in reader] == []
        assert [message async for message in reader] == []
    os.close(ours)


async def test_who_waits_for_a_line_can_be_cancelled() -> None:
    source, target = os.pipe()
    with reading(source) as (reader, _):
        with anyio.fail_after(10):
            with anyio.move_on_after(0.01) as waited:
                await reader.line()
            assert waited.cancelled_caught
        # Lets the thread go.
        os.close(target)


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["small", "large"])
async def test_what_nobody_reads_any_more_is_closed(size: int) -> None:
    source, target = os.pipe()
    os.close(source)
    _, writer = on_lines(lines.open_files(target, target))
    with anyio.fail_after(10):
        await writer.wait_for_reader_gone()
        with pytest.raises(anyio.ClosedResourceError):
            await writer.send(note("x" * size))
    os.close(target)


async def test_a_file_is_never_without_a_reader(tmp_path: Path) -> None:
    with (tmp_path / "answers").open("wb") as file:
        async with on_lines(lines.open_files(file.fileno(), file.fileno()))[1] as writer:
            await writer.send(note("a"))
            with anyio.move_on_after(0.05) as waited:
                await writer.wait_for_reader_gone()
    assert waited.cancelled_caught
    assert (tmp_path / "answers").read_bytes().count(b"\n") == 1
