"""`demo`: starts a real server over stdio on a real folder and shows reads, searches and a rejected write."""

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import anyio
from pydantic import JsonValue
from rich.console import Console
from rich.markup import escape

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.client import Answer, Connection, connect

_LINES = 6
"""Lines shown of each answer."""

_WIDTH = 300
"""Characters shown of each line."""

_MOST_FILES = 5_000
"""Files compared before and after; the demo is no benchmark."""


def demo(folder: str) -> int:
    """Run `_demo` in an event loop. Raises: SettingsError: there is no such folder, or no server starts."""
    if not os.path.isdir(folder):
        raise SettingsError(f"--root {folder}: not a folder that can be opened.")
    return anyio.run(_demo, os.path.abspath(folder))


async def _demo(folder: str) -> int:
    """Show the server at work on `folder`, read-only; exit status 1 when it does not keep its word."""
    console = Console(highlight=False, soft_wrap=True)
    sys.dont_write_bytecode = True
    before = _snapshot(Path(folder))
    # Imports nothing from the folder it shows, and writes no bytecode into it where that is a clone.
    server = [sys.executable, "-B", "-P", "-m", "mcp_toolserver"]
    command = [*server, "--permission-mode", "read-only", "--root", folder]
    console.print(f"[bold]$ mcp-toolserver --permission-mode read-only --root {escape(folder)}[/bold]")
    started = time.perf_counter()
    async with connect(command) as connection:
        ready = time.perf_counter() - started
        console.print(f"{connection.server}, MCP {connection.protocol}, ready in {ready:.2f} s")
        tools = await connection.tools()
        console.print(f"tools: {', '.join(tools)}\n")
        refused = await _tour(console, connection, Path(folder), commands="bash" in tools)
    untouched = before == _snapshot(Path(folder))
    verdict = "every one is unchanged" if untouched else "SOMETHING CHANGED"
    console.print(f"[bold]{len(before)} files compared before and after: {verdict}.[/bold]")
    return 0 if refused and untouched else 1


async def _tour(console: Console, connection: Connection, folder: Path, *, commands: bool) -> bool:
    """A few calls in `folder` as a model makes them; whether the write was refused."""
    found = await _show(console, connection, "glob_search", {"pattern": "**/*"})
    await _show(console, connection, "grep_search", {"pattern": r"\w+\(", "output_mode": "count"})
    # Where there is no file, the answer says so.
    first = "" if found.failed else found.text.partition("\n")[0]
    if (folder / first).is_file():
        await _show(console, connection, "read_file", {"path": first, "limit": _LINES})
    if commands:
        script = "ls | wc -l; echo hello > demo-was-here.txt"
        await _show(console, connection, "bash", {"command": script})
    write: dict[str, JsonValue] = {"path": "demo-was-here.txt", "content": "hello"}
    return (await _show(console, connection, "write_file", write)).failed


async def _show(
    console: Console, connection: Connection, name: str, arguments: dict[str, JsonValue]
) -> Answer:
    answer = await connection.call(name, arguments)
    given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    console.print(f"[cyan]→ {name}[/cyan]({escape(given)})")
    lines = answer.text.splitlines()
    colour = "red" if answer.failed else "green"
    for line in lines[:_LINES]:
        console.print(f"  [{colour}]│[/{colour}] {escape(line[:_WIDTH])}")
    if len(lines) > _LINES:
        console.print(f"  [{colour}]│[/{colour}] … {len(lines) - _LINES} more lines")
    console.print()
    return answer


def _snapshot(folder: Path) -> dict[str, str]:
    """Path → hash of content, mode and time of change."""
    return {str(path): _print_of(path) for path in islice(_files(folder), _MOST_FILES)}


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names))


def _print_of(path: Path) -> str:
    try:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and status.st_size < 2**20 else b""
    except OSError as error:
        return f"unreadable: {error.errno}"
    return f"{hashlib.sha256(content).hexdigest()} {status.st_mode} {status.st_mtime_ns} {status.st_size}"
