"""Runs hooks that are commands: as helper programs, which read what a read-only command may."""

import os
from contextlib import ExitStack

from pydantic_core import from_json, to_json

from mcp_toolserver.errors import Denied, Failed
from mcp_toolserver.pipeline.fair_semaphore import FairSemaphore
from mcp_toolserver.pipeline.hooks import Arguments
from mcp_toolserver.runtime.anonymous_file import opened_content
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import spawn
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.runtime.sandbox.broker.messages import Program

MAX_OUTPUT = 1 << 20
"""Bytes that a hook may print."""

_BLOCKS = 2
"""The exit status of a hook that denies a call."""

_SHOWN = 2_000
"""Bytes of its standard error that a message has."""


class HookCommands:
    """Runs commands for hooks, at most eight at a time, four for one client."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._slots = FairSemaphore(8, 4)

    async def run(self, argv: tuple[str, ...], given: Arguments) -> object:
        """Run one; returns what it prints, as JSON, or None. Cancelling this kills all that it started.

        Raises:
            Denied: it blocks the call.
            ToolError, OSError, ValueError: it failed.
        """
        async with self._slots.slot(str(given["session_id"])):
            process = self._start(Program(argv=argv, timeout=None), to_json(given))
            try:
                await process.child.started()
                output = b""
                while data := await process.read():
                    output += data
                    if len(output) > MAX_OUTPUT:
                        raise Failed(f"it printed more than {MAX_OUTPUT} bytes")
                ended = await process.wait()
            finally:
                await process.end()
        said = process.stderr()[:_SHOWN].decode(errors="replace").strip()
        if ended.reason == "exited" and ended.status == _BLOCKS:
            raise Denied(said)
        if ended.reason != "exited" or ended.status != 0:
            raise Failed(f"it {ended.reason} with status {ended.status}: {ended.detail or said}")
        return from_json(output, allow_inf_nan=False) if output.strip() else None

    def _start(self, program: Program, given: bytes) -> InteractiveProcess:
        with ExitStack() as opened:
            # Programs read settings in the folder that they start in, and a model may write those of a root.
            cwd = os.open("/", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, cwd)
            stdin = opened.enter_context(opened_content("hook", given))
            spawned = spawn(self._broker, program, cwd=cwd, stdin=stdin, separate_stderr=True)
            return InteractiveProcess(spawned)
