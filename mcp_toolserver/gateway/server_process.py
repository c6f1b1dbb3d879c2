"""Starts another MCP server as a command of the permission mode: in the sandbox of `bash`, with a home of its
own, which ends with it."""

import os
import re
import select
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

import anyio
from anyio.lowlevel import checkpoint

from mcp_toolserver.gateway.prepared import PreparedPackage, package_runner
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.text.lines.escape_invisible import visible

OWNER = "gateway"
"""Begins the names of the sessions of servers."""

_OWN_HOME = """
if [ -r "$HOME/.gitconfig" ]; then export GIT_CONFIG_GLOBAL="$HOME/.gitconfig"; fi
if [ -n "$TMPDIR" ]; then mkdir -p "$TMPDIR/home" && export HOME="$TMPDIR/home"; fi
exec "$@"
"""
"""Commits keep the author of the user's git configuration."""

_AT_ONCE = 64
"""Lines of a server before others have their turn."""

_WITH_ADVICE = """
"$@"
status=$?
[ "$status" = 0 ] || echo "$0" >&2
exit "$status"
"""
"""Runs a package runner, and says what to do where it fails."""

_STDERR = 2
_PIPE_BUF = 512
"""Bytes that POSIX lets a pipe take at once, or not at all."""


_LAUNCHERS = re.compile(
    r"(npx|bunx|uvx|uv|pnpm|yarn|dlx|exec|run|tool|env|sh|bash|deno|bun|node|python[\d.]*)"
)
_GENERIC = ("", "index", "main", "__main__", "server", "cli", "dist", "build", "src", "bin", "out")


def server_name(command: Sequence[str]) -> str:
    """A name for the server that `command` starts: of its package, program or folder, without version and
    extension: `npx -y @org/server-files@1.2` is server-files."""
    words = [word for word in command if not word.startswith("-") and "=" not in word]
    chosen = next((word for word in words if not _LAUNCHERS.fullmatch(os.path.basename(word))), command[0])
    parts = [re.sub(r"\.(py|[cm]?js|ts)$", "", part.partition("@")[0]) for part in chosen.split("/")]
    part = next((part for part in reversed(parts) if part not in _GENERIC), "server")
    return re.sub(r"[^A-Za-z0-9.-]|_+", "-", part).strip("-.")[:64] or "server"


async def start_server(  # noqa: PLR0913  what it may use has no use together but here
    broker: Broker,
    command: Sequence[str],
    *,
    name: str,
    cwd: int,
    own_home: bool,
    prepared: PreparedPackage,
    roots: tuple[str, ...] | None = None,
) -> InteractiveProcess:
    """Start `command`, or what is `prepared` for it, in the folder open as `cwd`, which this closes. It sees
    `roots` of those of the broker; None for all. Raises: Unavailable: it cannot be."""
    program = prepared.command(command)
    argv = program or tuple(command)
    if not program and (runner := package_runner(command)):
        # What follows may have a key.
        words = f"mcp-toolserver upstream prepare {prepared.server} -- {' '.join(command[: runner[1]])} ..."
        argv = (
            "sh",
            "-c",
            _WITH_ADVICE,
            f"Without a network, first run with the whole command: {words}",
            *argv,
        )
    return await start_interactive(
        broker,
        ("sh", "-c", _OWN_HOME, "sh", *argv) if own_home else argv,
        cwd=cwd,
        roots=roots,
        owner=f"{OWNER} {name}",
        name=f"the MCP server {name}",
        prepared=prepared.server if program else "",
    )


class Notes:
    """Says what happened to protected names since the last call, and where the server could not connect.
    `writes` is whether it may write in its roots."""

    def __init__(self, broker: Broker, process: InteractiveProcess, name: str, *, writes: bool) -> None:
        self._broker, self._process, self._session = broker, process, f"{OWNER} {name}"
        self._writes = writes
        self._seen = 0
        """The last refused connection that a result had a note on."""

    async def __call__(self) -> Sequence[str]:
        notes: tuple[str, ...] = ()
        if known := self._broker.connections:
            notes = known.refusals(self._session, self._seen)
            self._seen = known.watch(self._session)
        if self._writes and self._process.exit is None:
            return (*await self._process.check(), *notes)
        return notes


class TooLong(Exception):
    """A server sent a message of more bytes than is allowed."""


async def lines_of(process: InteractiveProcess, longest: int) -> AsyncGenerator[bytes]:
    """Yield each line that a server writes, with its end. Raises: TooLong."""
    buffer, count = bytearray(), 0
    while data := await process.read():
        searched = len(buffer)
        buffer += data
        while (end := buffer.find(b"\n", searched)) >= 0:
            line = bytes(buffer[: end + 1])
            del buffer[: end + 1]
            searched = 0
            yield line
            count += 1
            if count % _AT_ONCE == 0:
                # A busy server does not block the others.
                await checkpoint()
        if len(buffer) > longest:
            raise TooLong


async def how_it_ended(process: InteractiveProcess, seconds: float) -> str:
    """How a server whose output is closed ended, within `seconds`, to follow its name."""
    with anyio.move_on_after(seconds):
        await process.wait()
    ended = process.exit
    status = f" with exit status {ended.status}" if ended and ended.status is not None else ""
    detail = f" ({ended.detail})" if ended and ended.detail else ""
    errors = process.stderr()[-500:].decode(errors="replace").strip()
    return f"ended{status}{detail}" + (f"; it printed: {errors}" if errors else "")


class ErrorRelay:
    """Passes on what a server writes to standard error: by line, escaped, and no more than a reader takes."""

    LINES, SECONDS = 200, 10.0
    """At most so many lines in so many seconds; the rest is left out."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self._since, self._count = 0.0, 0

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:_PIPE_BUF]
        for line in lines:
            self.say(line.decode(errors="replace"))

    def say(self, text: str) -> None:
        """Write a line, unless that would wait."""
        if time.monotonic() - self._since > self.SECONDS:
            self._since, self._count = time.monotonic(), 0
        self._count += 1
        if self._count > self.LINES:
            return
        text = "further lines are left out" if self._count == self.LINES else text
        line = visible(f"{self._name}: {text[:_PIPE_BUF]}").encode(errors="replace")[: _PIPE_BUF - 1] + b"\n"
        # The operator may have closed it.
        with suppress(OSError):
            if select.select([], [_STDERR], [], 0)[1]:
                os.write(_STDERR, line)
