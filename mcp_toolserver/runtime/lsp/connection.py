"""Requests and their answers over the pipes of one language server."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.lsp.wire import Frames, Unintelligible, framed, parsed
from mcp_toolserver.runtime.sandbox.wire import is_object

_LARGE = 256 << 10
"""Bytes of a message from which a thread takes it apart, while others are served."""

_MOST_UNSENT = 1_000
_MOST_UNSENT_BYTES = 64 << 20
"""What waits to be read by a server; one that asks without listening is ended."""

METHOD_NOT_FOUND = -32601
_CANCEL = "$/cancelRequest"


class Ended(Exception):
    """The server is gone, or was given up; the text says why and goes on from "it"."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class Unanswerable(Exception):
    """What the server asks of its client is not for it to have."""


class Partner(Protocol):
    """A program that is talked to; see `Dialogue`."""

    def offer(self, data: bytes) -> int: ...
    async def say(self, data: bytes) -> None: ...
    async def hear(self) -> bytes: ...
    async def end(self) -> None: ...


class Talk:
    """Speaks and listens until one side ends it. `answer` answers what the server asks, or raises
    `Unanswerable`; `heard` gets what it tells; `ended` is called once, when it is over.
    """

    def __init__(
        self,
        partner: Partner,
        answer: Callable[[str, object], object],
        heard: Callable[[str, object], None],
        ended: Callable[[], None],
    ) -> None:
        self._partner = partner
        self._answer = answer
        self._heard = heard
        self._ended = ended
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._last = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._something = asyncio.Event()
        self.why_over = ""
        """Why it is over; empty while it goes on."""
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._listen()), loop.create_task(self._speak()))

    async def request(self, method: str, params: object) -> object:
        """Ask, and wait for the answer. A caller who gives up has the server told.

        Raises:
            Ended: there will be no answer.
            Refused: it is an error.
        """
        self._refuse_over()
        self._last += 1
        number = self._last
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self.why_over:
                self._send({"jsonrpc": "2.0", "method": _CANCEL, "params": {"id": number}})
            raise
        finally:
            self._waiting.pop(number, None)

    def notify(self, method: str, params: object) -> None:
        """Tell. Raises: Ended: nobody listens any more."""
        self._refuse_over()
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self, why: str) -> None:
        """End the server and the talk."""
        self._over(why)
        for task in self._tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Only now: what a task still read from could be another's descriptor by then.
            await self._partner.end()

    def _refuse_over(self) -> None:
        if self.why_over:
            raise Ended(self.why_over)

    def _over(self, why: str) -> None:
        if self.why_over:
            return
        self.why_over = why
        self._ended()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Ended(self.why_over))

    def _send(self, message: dict[str, object]) -> None:
        data = framed(message)
        if not self._unsent_bytes:
            # It is on its way before anything else is done, not when the loop comes to it.
            data = data[self._partner.offer(data) :]
        if not data:
            return
        self._unsent_bytes += len(data)
        if self._unsent_bytes > _MOST_UNSENT_BYTES or len(self._unsent) >= _MOST_UNSENT:
            self._over("does not read what it is sent")
            return
        self._unsent.append(data)
        self._something.set()

    async def _speak(self) -> None:
        try:
            while not self.why_over:
                await self._something.wait()
                self._something.clear()
                while self._unsent:
                    data = self._unsent.popleft()
                    await self._partner.say(data)
                    self._unsent_bytes -= len(data)
        except Unavailable:
            self._over("ended")

    async def _listen(self) -> None:
        frames = Frames()
        why = "ended"
        try:
            while not self.why_over and (data := await self._partner.hear()):
                for body in frames.feed(data):
                    await self._take(body)
                    # One that never pauses must not keep others waiting.
                    await checkpoint()
        except Unintelligible as error:
            why = str(error)
        self._over(why)

    async def _take(self, body: bytes) -> None:
        is_large = len(body) > _LARGE
        message = await to_thread.run_sync(parsed, body) if is_large else parsed(body)
        if not is_object(message):
            raise Unintelligible("sent a message that is no object")
        method = message.get("method")
        if not isinstance(method, str):
            self._settle(message)
        elif "id" in message:
            self._reply(message["id"], method, message.get("params"))
        else:
            self._heard(method, message.get("params"))

    def _settle(self, message: dict[str, object]) -> None:
        """Hand an answer to whoever waits for it, if anybody does."""
        number = message.get("id")
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if error is None:
            waiting.set_result(message.get("result"))
        else:
            code = error.get("code") if is_object(error) else None
            waiting.set_exception(Refused(code if isinstance(code, int) else 0))

    def _reply(self, number: object, method: str, params: object) -> None:
        try:
            said: dict[str, object] = {"result": self._answer(method, params)}
        except Unanswerable:
            said = {"error": {"code": METHOD_NOT_FOUND, "message": "not offered by this client"}}
        self._send({"jsonrpc": "2.0", "id": number, **said})
