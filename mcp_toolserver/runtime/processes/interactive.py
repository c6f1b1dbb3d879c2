"""Long-running commands with open standard input: language servers and interpreter sessions.

They run in the same sandbox as other commands and end with the server.
"""

import contextlib
import os
import shlex
from collections.abc import Callable, Sequence

import anyio

from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import (
    CHUNK,
    Child,
    Exit,
    PipeReader,
    PipeWriter,
    Spawned,
    input_pipe,
    spawn,
)
from mcp_toolserver.runtime.sandbox.broker.messages import Script

MAX_STDERR = 64 << 10
"""The process keeps this many of the last bytes of standard error."""

END_SECONDS = 5.0
"""How long `end` waits for the supervisor to report that every process has ended."""


class InteractiveProcess:
    """A running process. At most one task may write and one may read at a time."""

    def __init__(self, spawned: Spawned, stdin: PipeWriter | None = None) -> None:
        assert spawned.errors is not None
        self.stdin = PipeWriter(-1) if stdin is None else stdin
        self._output = spawned.output
        self._stderr = bytearray()
        self._pass_on: Callable[[bytes], None] = lambda _: None
        self._errors = PipeReader(spawned.errors, self._add_stderr)
        self.child = Child(spawned.control, self._errors.finish)
        self._open = True

    @property
    def exit(self) -> Exit | None:
        """How it ended; None while it runs."""
        return self.child.exit

    async def read(self) -> bytes:
        """Read the next chunk of standard output, at most 1 MiB; empty at end of file and after `end`."""
        while self._output >= 0:
            try:
                return os.read(self._output, CHUNK)
            except BlockingIOError:
                # After `end`, its number may be another file's, so it is looked at anew.
                with contextlib.suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(self._output)
        return b""

    async def check(self) -> tuple[str, ...]:
        """Verify protected names now; returns the notes since the last check, in sentences."""
        await self.child.check()
        return self.child.take_notes()

    async def wait(self) -> Exit:
        """Wait until the process and everything it started have ended."""
        return await self.child.wait()

    def stderr(self) -> bytes:
        """The last 64 KiB of its standard error."""
        return bytes(self._stderr)

    def on_stderr(self, take: Callable[[bytes], None]) -> None:
        """Call `take` with what it writes to standard error, from now on, and with what is kept of it."""
        take(self.stderr())
        self._pass_on = take

    async def end(self) -> None:
        """Kill the process and everything it started, and release its descriptors."""
        if not self._open:
            return
        self._open = False
        await self.child.end(END_SECONDS)
        self._errors.close()
        self.stdin.close()
        anyio.notify_closing(self._output)
        os.close(self._output)
        self._output = -1

    def _add_stderr(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-MAX_STDERR]
        self._pass_on(data)


async def start_interactive(  # noqa: PLR0913  what it may use has no use together but here
    broker: Broker,
    argv: Sequence[str],
    *,
    cwd: int | None = None,
    roots: tuple[str, ...] | None = None,
    read_only: bool = False,
    keeps_git: bool = False,
    owner: str = "",
    name: str = "",
    prepared: str = "",
) -> InteractiveProcess:
    """Start `argv` in a command's sandbox, in the folder open as descriptor `cwd`, which this closes, or in
    `/`. It sees `roots` of the server, or folders in them; None for all. It shares a loopback interface with
    the commands of `owner`; without one, it has its own. Answers call it `name`. For `prepared` see `Script`.

    Raises:
        Unavailable: it cannot be started.
    """
    if cwd is None:
        cwd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, cwd)
        if owner and not read_only:
            await broker.back_up(owner)
        script = Script(
            script=f"exec {shlex.join(argv)}",
            timeout=None,
            roots=roots,
            session=owner,
            read_only=read_only,
            keeps_git=keeps_git,
            hidden_git=tuple(await broker.hidden_git()),
            prepared=prepared,
        )
        reading, writing = input_pipe()
        opened.callback(os.close, reading)
        try:
            spawned = spawn(broker, script, cwd=cwd, stdin=reading, separate_stderr=True)
        except BaseException:
            writing.close()
            raise
    process = InteractiveProcess(spawned, writing)
    process.child.name = name
    if owner and not read_only:
        broker.writers.add(process.child, owner)
    try:
        await process.child.started()
    except BaseException:
        await process.end()
        raise
    return process
