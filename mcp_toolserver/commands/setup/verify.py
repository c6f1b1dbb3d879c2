"""Starts a configured server as the client will, and lists its tools."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import anyio

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.client import connect

_SECONDS = 120
"""For a start, which may have to install the server (`uvx`)."""


def listed_tools(command: Sequence[str], root: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the tools that the server lists.

    It runs with no variable but HOME. If its root is the folder that is open in the client, that is an empty
    temporary folder; else it runs in `/`.

    Args:
        root: what stands for the folder that is open in the client.

    Raises:
        SettingsError: the server does not start; the text holds what it says.
    """
    with tempfile.TemporaryDirectory(prefix="mcp-toolserver-") as folder:
        opened = root is not None and root in command
        words = [folder if opened and word == root and root != "." else word for word in command]
        bare = ["/usr/bin/env", "-i", f"HOME={environ['HOME']}", *words]
        cwd = folder if opened else "/"
        with suppress(OSError, TimeoutError, ExceptionGroup, SettingsError):
            return _listed(bare, cwd)
        _check_start(bare, cwd)
        # What took too long was the installation, which is done now.
        return _listed(bare, cwd)


def _check_start(command: Sequence[str], cwd: str) -> None:
    """Start the server with no input, at the end of which one that could start ends with status 0.

    Raises:
        SettingsError: it does not.
    """
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=cwd,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(f"the server does not start within {_SECONDS} s") from None
    if ended.returncode != 0:
        said = ended.stderr.strip().removeprefix("mcp-toolserver: ") or f"exit status {ended.returncode}"
        raise SettingsError(f"the server does not start as configured: {said}")


def _listed(command: Sequence[str], cwd: str) -> tuple[str, ...]:
    # If it fails, `_check_start` reports what the server says.
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        return anyio.run(_connected, command, cwd, nothing)


async def _connected(command: Sequence[str], cwd: str, errors: TextIO) -> tuple[str, ...]:
    async with connect(command, cwd=cwd, errors=errors) as connection:
        return await connection.tools()
