"""A command that stays and is talked to: a language server, or a session of an interpreter.

It runs behind the walls of any command, and ends with the server.
"""

import os
import shlex
from collections.abc import Sequence

import anyio

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.child import Child, Drain, piece
from mcp_toolserver.runtime.launch import Exit
from mcp_toolserver.runtime.sandbox.wire import Script
from mcp_toolserver.runtime.spawn import Spawned, spawn

COMPLAINTS = 64 << 10
"""Bytes of standard error that are kept: the last ones."""

END_SECONDS = 5.0
"""How long `end` waits for the nanny's word that all is gone."""


class Dialogue:
    """Our side of the talk. One task may say and one may hear at a time."""

    def __init__(self, spawned: Spawned, words: int) -> None:
        assert spawned.errors is not None
        self._words = words
        self._output = spawned.output
        self._complaints = bytearray()
        self._errors = Drain(spawned.errors, self._complain)
        self._child = Child(spawned.control, self._errors.finish)
        self._open = True

    @property
    def exit(self) -> Exit | None:
        """How it ended; None while it runs."""
        return self._child.exit

    def offer(self, data: bytes) -> int:
        """Write what its standard input takes at once, and tell how many bytes that was.

        Not while a task says something.
        """
        try:
            return os.write(self._words, data)
        except OSError:
            return 0

    async def say(self, data: bytes) -> None:
        """Write all of `data` to its standard input.

        Raises:
            Unavailable: it reads no more.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._words, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._words)
            except OSError:
                raise Unavailable("The program that was talked to has ended.") from None

    def finish(self) -> None:
        """Say no more: its standard input ends."""
        if self._words >= 0:
            anyio.notify_closing(self._words)
            os.close(self._words)
            self._words = -1

    async def hear(self) -> bytes:
        """What comes next on its standard output, at most 1 MiB; empty at the end."""
        return await piece(self._output)

    async def wait(self) -> Exit:
        """Returns when it, and all it started, is gone."""
        return await self._child.wait()

    def complaints(self) -> bytes:
        """The last 64 KiB of its standard error."""
        return bytes(self._complaints)

    async def end(self) -> None:
        """Kill it, if it still runs, with all it started, and let go of it."""
        if not self._open:
            return
        self._open = False
        await self._child.end(END_SECONDS)
        self._errors.close()
        self.finish()
        anyio.notify_closing(self._output)
        os.close(self._output)

    async def started(self) -> None:
        """See `Child.started`."""
        await self._child.started()

    def _complain(self, data: bytes) -> None:
        self._complaints += data
        del self._complaints[:-COMPLAINTS]


async def converse(broker: Broker, argv: Sequence[str], *, cwd: int) -> Dialogue:
    """Start `argv` as a command, behind a command's walls, in the folder open as descriptor `cwd`.

    Raises:
        Unavailable: it cannot be started.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)
    try:
        script = Script(script=f"exec {shlex.join(argv)}", timeout=None)
        spawned = spawn(broker, script, cwd=cwd, stdin=reading, apart=True)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    dialogue = Dialogue(spawned, writing)
    try:
        await dialogue.started()
    except BaseException:
        await dialogue.end()
        raise
    return dialogue
