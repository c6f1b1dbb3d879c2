"""A real server process, and the official client connected to it over any transport, in either era."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, LoggingMessageNotificationParams, TextContent

from tests.support.process_layer import server_command

TOKEN = "a-token-that-only-this-test-knows"  # one server's own, on loopback
ERAS = ("legacy", "auto")
TRANSPORTS = ("stdio", "http", "sse")
MODES = ("read-only", "workspace-write", "danger-full-access")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How to start a server on `root`; its own files lie in `home`."""

    root: Path
    home: Path
    mode: str = "read-only"
    flags: Sequence[str] = ()
    environ: dict[str, str] = field(default_factory=dict)
    around: Sequence[str] = ()
    """A command line that ends with running its arguments: as another user, who owns `home`."""

    @classmethod
    def below(cls, folder: Path, mode: str = "read-only", *flags: str) -> "Setup":
        """On the new folder `root` in `folder`, with the new folder `home` next to it."""
        root, home = folder / "root", folder / "home"
        root.mkdir()
        home.mkdir()
        return cls(root=root, home=home, mode=mode, flags=flags)

    @property
    def command(self) -> list[str]:
        return [
            *self.around,
            *server_command(), "--permission-mode", self.mode, "--root", str(self.root),
            "--state-dir", str(self.home / "state"), "--toolsets", "all", *self.flags,
        ]  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home), **self.environ}


class Messages:
    """The log messages that a client gets."""

    def __init__(self) -> None:
        self._queue = asyncio.Queue[str]()

    async def take(self, params: LoggingMessageNotificationParams) -> None:
        await self._queue.put(str(params.data))

    async def message(self) -> str:
        """The next one."""
        async with asyncio.timeout(60):
            return await self._queue.get()


def text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@contextmanager
def serving(setup: Setup, transport: str) -> Generator[str]:
    """A server over HTTP; gives its address."""
    token = setup.home / "token"
    token.write_text(TOKEN, encoding="utf-8")
    token.chmod(0o600)
    owner = setup.home.stat()
    os.chown(token, owner.st_uid, owner.st_gid)
    with listening(setup, transport, "--token-file", str(token)) as url:
        yield url


@contextmanager
def listening(setup: Setup, transport: str, *flags: str) -> Generator[str]:
    """A server over HTTP that finds its tokens by `flags`; gives its address."""
    command = [*setup.command, "--transport", transport, "--port", "0", *flags]
    process = subprocess.Popen(
        command, env=setup.environment, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stderr is not None
    try:
        seen = ""
        for line in process.stderr:
            seen += line
            if found := re.search(r"http://\S+", line):
                yield found[0]
                break
        else:
            raise AssertionError(f"the server did not start: {seen}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)
        process.stderr.close()


@asynccontextmanager
async def connected(
    setup: Setup, transport: str = "stdio", era: str = "legacy", **options: Any
) -> AsyncGenerator[Client]:
    """The official client, connected to a server of its own."""
    options = {"mode": era, "read_timeout_seconds": 30, **options}
    if transport == "stdio":
        parameters = StdioServerParameters(
            command=setup.command[0], args=setup.command[1:], env=setup.environment, cwd=os.getcwd()
        )
        async with Client(parameters, **options) as client:
            yield client
        return
    with serving(setup, transport) as url:
        async with connected_to(url, transport, **options) as client:
            yield client


@asynccontextmanager
async def connected_to(
    url: str, transport: str, *, token: str = TOKEN, **options: Any
) -> AsyncGenerator[Client]:
    """The official client, connected to a server that is already there."""
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        wire = (
            sse_client(url, headers=headers)
            if transport == "sse"
            else streamable_http_client(url, http_client=http)
        )
        async with Client(wire, **{"read_timeout_seconds": 30, **options}) as client:
            yield client


class SharedServers:
    """Servers and clients that stay over many tests, one for each setup, transport and era.

    What a context opens it must close in the same task, so each client has a task of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers = ExitStack()
        self._setups: dict[tuple[str, ...], Setup] = {}
        self._urls: dict[tuple[str, ...], str] = {}
        self._clients: dict[tuple[str, ...], asyncio.Future[Client]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._end = asyncio.Event()

    def setup(self, mode: str = "read-only", *flags: str) -> Setup:
        """The setup of this mode and these flags, with a root and a home that its tests share."""
        if (mode, *flags) not in self._setups:
            place = self._folder / str(len(self._setups))
            place.mkdir()
            self._setups[mode, *flags] = Setup.below(place, mode, *flags)
        return self._setups[mode, *flags]

    def url(self, setup: Setup, transport: str = "http") -> str:
        """The address of this server, for clients of the test's own."""
        key = (*setup.command, transport)
        if key not in self._urls:
            self._urls[key] = self._servers.enter_context(serving(setup, transport))
        return self._urls[key]

    async def client(
        self, setup: Setup, transport: str = "stdio", era: str = "legacy", **options: Any
    ) -> Client:
        """The client of this server. `options` count when it is asked for first: a test with options of its
        own has a setup of its own."""
        key = (*setup.command, transport, era)
        if key not in self._clients:
            self._clients[key] = asyncio.get_running_loop().create_future()
            if transport == "stdio":
                connection = connected(setup, era=era, **options)
            else:
                connection = connected_to(self.url(setup, transport), transport, mode=era, **options)
            self._tasks.append(asyncio.create_task(self._hold(connection, self._clients[key])))
        return await asyncio.shield(self._clients[key])

    async def _hold(
        self, connection: AbstractAsyncContextManager[Client], made: asyncio.Future[Client]
    ) -> None:
        try:
            async with connection as client:
                made.set_result(client)
                await self._end.wait()
        except BaseException as error:
            if made.done():
                raise
            made.set_exception(error)

    async def aclose(self) -> None:
        self._end.set()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            self._servers.close()
