"""Starts another MCP server as a command of the permission mode: in the sandbox of `bash`, with a home of its
own, which ends with it."""

import os
import re
import select
import time
from collections.abc import Sequence
from contextlib import suppress

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


async def start_server(
    broker: Broker, command: Sequence[str], *, name: str, cwd: int, own_home: bool
) -> InteractiveProcess:
    """Start `command` in the folder open as `cwd`, which this closes. Raises: Unavailable: it cannot be."""
    argv = ("sh", "-c", _OWN_HOME, "sh", *command) if own_home else command
    return await start_interactive(
        broker, argv, cwd=cwd, owner=f"{OWNER} {name}", name=f"the MCP server {name}"
    )


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
