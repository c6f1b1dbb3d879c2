"""A real server process, and the official client connected to it over any transport, in either era."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.covering import covered

TOKEN = "a-token-that-only-this-test-knows"  # one server's own, on loopback
ERAS = ("legacy", "auto")
TRANSPORTS = ("stdio", "http", "sse")
MODES = ("read-only", "workspace-write", "danger-full-access")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How to start a server on `root`; its own files lie beside, in `home`."""

    root: Path
    home: Path
    mode: str = "read-only"
    flags: Sequence[str] = ()
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return [
            sys.executable, "-m", "mcp_toolserver", "--permission-mode", self.mode, "--root", str(self.root),
            "--state-dir", str(self.home / "state"), "--toolsets", "all", *self.flags,
        ]  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        environ = covered(os.environ, self.home / "state")
        return {**environ, "HOME": str(self.home), **self.environ}


def text(result: CallToolResult) -> str:
    """All the text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@contextmanager
def serving(setup: Setup, transport: str) -> Generator[str]:
    """A server over HTTP; gives its address."""
    token = setup.home / "token"
    token.write_text(TOKEN, encoding="utf-8")
    token.chmod(0o600)
    command = [*setup.command, "--transport", transport, "--port", "0", "--token-file", str(token)]
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
    headers = {"authorization": f"Bearer {TOKEN}"}
    with serving(setup, transport) as url:
        async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
            wire = (
                sse_client(url, headers=headers)
                if transport == "sse"
                else streamable_http_client(url, http_client=http)
            )
            async with Client(wire, **options) as client:
                yield client
