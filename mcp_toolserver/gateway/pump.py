"""Carries JSON-RPC messages between a client and one MCP server, in both generations of the protocol.

It inspects `initialize`, `server/discover`, `tools/list` and `tools/call`. Everything else passes as it
came: requests of the server, progress, cancellation, resources, prompts. A request of the client gets one
answer, also if the server dies or sends two.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

import anyio
from anyio.abc import TaskGroup
from pydantic import JsonValue

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.gateway.definitions import MOST_TOOLS, named
from mcp_toolserver.gateway.gate import Gate, Refused, failure
from mcp_toolserver.gateway.messages import (
    CLOSED,
    INTERNAL,
    INVALID,
    PARSE,
    Id,
    Malformed,
    Message,
    Object,
    as_id,
    encode,
    error,
    parse,
)
from mcp_toolserver.gateway.server_process import TooLong, how_it_ended, lines_of
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.text.lines.escape_invisible import visible_values

_LIST, _CALL = "tools/list", "tools/call"
_DISCOVER = "server/discover"
_STARTS = ("initialize", _DISCOVER)
_RESULTS = (_CALL, "tasks/result")
"""What answers with the result of a tool."""

_META = "io.modelcontextprotocol/"
"""Begins the names of what each request of the stateless protocol says of its client."""

_MOST_PAGES = 100


@dataclass(frozen=True, kw_only=True)
class PumpLimits:
    message: int = 16 << 20
    """Bytes of a message of the server."""
    pending: int = 256
    """Requests in progress."""
    answer: float = 60.0
    """Seconds until the server has to answer what the gateway inspects, and to read what it is sent; ..."""
    call: float = 3600.0
    """... calls of tools."""
    ask: float = 45.0
    """Seconds that a question to the user waits."""
    drain: float = 5.0
    """Seconds that requests may take after the end of input."""
    exit: float = 1.0
    """Seconds that the server may take to exit by itself."""


@dataclass(kw_only=True, eq=False)
class _Pending:
    method: str
    deadline: float
    call: CallRecord | None = None
    is_sent: bool = False
    """Whether the server has it, and so may answer."""


class Pump:
    """`read` and `write` are of the client, see `protocol.stdio.lines.Lines`; `say` writes a line for the
    operator, and `verified` returns notes on what a call did, as sentences."""

    def __init__(  # noqa: PLR0913  the two ends, and what stands between
        self,
        process: InteractiveProcess,
        gate: Gate,
        read: Callable[[], Awaitable[bytes | None]],
        write: Callable[[bytes], Awaitable[None]],
        *,
        say: Callable[[str], None],
        verified: Callable[[], Awaitable[Sequence[str]]],
        limits: PumpLimits | None = None,
    ) -> None:
        self._process, self._gate, self._read, self._write = process, gate, read, write
        self._say, self._verified, self._limits = say, verified, limits or PumpLimits()
        self._pending: dict[Id, _Pending] = {}
        self._questions: dict[Id, asyncio.Future[Object]] = {}
        """Requests of ours, to the server or the client."""
        self._sending, self._listing = anyio.Lock(), anyio.Lock()
        self._is_listed = self._has_answered = self._can_ask = self._is_ending = False
        self._settled = anyio.Event()
        self._client = ""
        self._gone = ""
        """Why the server answers no more; empty while it does."""
        self._working = anyio.CancelScope()

    async def run(self) -> bool:
        """Carry messages until the client leaves or the server ends; returns whether the client left."""
        try:
            with self._working:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._from_server)
                    tasks.start_soon(self._expire)
                    await self._from_client(tasks)
                    await self._drain()
                    self._working.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()
        return not self._gone

    # --- the client -----------------------------------------------------------------------------------------

    async def _from_client(self, tasks: TaskGroup) -> None:
        while (line := await self._read()) != b"":
            if line is None or not line.strip():
                if line is None:
                    await self._tell(error(None, INVALID, "The message is too long"))
                continue
            try:
                messages = parse(line)
            except Malformed as why:
                await self._tell(error(None, PARSE, f"The message cannot be used: it {why}"))
                continue
            for message in messages:
                await self._of_client(message, tasks)

    async def _of_client(self, message: Message, tasks: TaskGroup) -> None:
        if message.method is None and self._answers(message):
            return
        if message.method is None or "id" not in message.fields:
            if message.method == "notifications/cancelled":
                await self._forget(message.params.get("requestId"))
            await self._send(message.line)
        elif why := self._unacceptable(message):
            await self._tell(error(message.id, INVALID, why))
        elif self._gone:
            await self._tell(error(message.id, CLOSED, self._gone))
            if message.method != _DISCOVER:
                self._working.cancel()
        else:
            await self._accept(message, tasks)

    def _unacceptable(self, message: Message) -> str:
        if message.id is None:
            return "The id of a request must be a text or a whole number"
        if message.id in self._pending:
            return "A request with this id is in progress"
        if len(self._pending) >= self._limits.pending:
            return f"{self._limits.pending} requests are in progress; no more may be"
        return ""

    async def _accept(self, message: Message, tasks: TaskGroup) -> None:
        method, params = message.method or "", message.params
        seconds = self._limits.call if method == _CALL else self._limits.answer
        is_inspected = method in (*_STARTS, _LIST, _CALL)
        pending = _Pending(method=method, deadline=monotonic() + seconds if is_inspected else float("inf"))
        assert message.id is not None
        self._pending[message.id] = pending
        if method in _STARTS:
            self._learn(params)
        if method not in (_LIST, _CALL) or (self._is_listed and not self._gate.policy.may_ask):
            await self._forward(message, pending)
        else:
            # It may wait for the server or the user, whose answers come by this same loop.
            tasks.start_soon(self._forward, message, pending)

    def _learn(self, params: Object) -> None:
        capabilities, client = params.get("capabilities"), params.get("clientInfo")
        self._can_ask = isinstance(capabilities, dict) and "elicitation" in capabilities
        self._client = str(client.get("name", "")) if isinstance(client, dict) else self._client

    async def _forward(self, message: Message, pending: _Pending) -> None:
        """Send a request on, unless it is refused or was cancelled meanwhile."""
        assert message.id is not None
        try:
            if pending.method in (_LIST, _CALL):
                await self._list_first(message.params)
            if pending.method == _CALL:
                await self._begin(message, pending)
            if self._pending.get(message.id) is pending:
                pending.is_sent = True
                await self._send(message.line)
        except (Refused, RecursionError) as why:
            text = str(why) if isinstance(why, Refused) else "What was sent is nested too deeply."
            if self._pop(message.id) is pending:
                await self._tell(encode({"jsonrpc": "2.0", "id": message.id, "result": failure(text)}))

    async def _begin(self, message: Message, pending: _Pending) -> None:
        params = message.params
        meta = params.get("_meta")
        info = meta.get(f"{_META}clientInfo") if isinstance(meta, dict) else None
        client = str(info.get("name", "")) if isinstance(info, dict) else self._client
        tool, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(tool, str) or not isinstance(arguments, dict):
            raise Refused("The name of a tool is a text, and its arguments are an object.")
        pending.call = await self._gate.begin(tool, arguments, client, self._ask)
        if message.id is not None and self._pending.get(message.id) is not pending:
            await self._gate.finish(pending.call, "cancelled", "")

    async def _ask(self, question: str) -> bool | None:
        if not self._can_ask:
            return None
        schema: Object = {"type": "object", "properties": {}}
        asked: Object = {"message": question, "requestedSchema": schema}
        answer = await self._request(self._tell, "elicitation/create", asked, self._limits.ask)
        return answer["action"] == "accept" if "action" in answer else None

    async def _drain(self) -> None:
        """After the end of input: let requests be answered, and the server exit."""
        with anyio.move_on_after(self._limits.drain):
            while any(one.deadline < float("inf") for one in self._pending.values()):
                self._settled = anyio.Event()
                await self._settled.wait()
        self._is_ending = True
        async with self._sending:
            self._process.stdin.close()
        with anyio.move_on_after(self._limits.exit):
            await self._process.wait()

    # --- the server -----------------------------------------------------------------------------------------

    async def _from_server(self) -> None:
        why = ""
        try:
            async for line in lines_of(self._process, self._limits.message):
                await self._of_server(line)
        except TooLong:
            why = f"sent a message of more than {self._limits.message:,} bytes, so it was ended"
        if why or not self._is_ending:
            await self._leave(why or await how_it_ended(self._process, self._limits.exit))

    async def _leave(self, why: str) -> None:
        """The server is of no more use: answer what waits, and stop. A client that has yet to send its first
        request, or `initialize` after `server/discover`, gets the reason then, and shows it."""
        self._gone = f"The MCP server {self._gate.server} {why}."
        self._say(self._gone)
        is_known = self._has_answered or any(one.method != _DISCOVER for one in self._pending.values())
        await self._fail_pending(self._gone)
        if not is_known:
            await anyio.sleep(self._limits.drain)
        self._working.cancel()

    async def _of_server(self, line: bytes) -> None:
        try:
            messages = parse(line) if line.strip() else []
        except Malformed as why:
            printed = line[:200].decode(errors="replace")
            self._say(f"what it printed is not passed on, because it {why}: {printed}")
            return
        for message in messages:
            if message.method is not None:
                if message.method == "notifications/tools/list_changed":
                    self._is_listed = False
                await self._tell(message.line)
            elif not self._answers(message):
                await self._respond(message)

    async def _respond(self, message: Message) -> None:
        pending = None if message.id is None else self._pending.get(message.id)
        if message.id is None or pending is None or not pending.is_sent:
            self._say("an answer to no request is not passed on")
            return
        self._pop(message.id)
        self._has_answered = True
        try:
            line = await self._inspected(message, pending)
        except RecursionError:
            line = error(
                message.id, INTERNAL, f"{self._gate.server} sent an answer that is nested too deeply"
            )
            await self._finish(pending, "error")
        await self._tell(line)

    async def _inspected(self, message: Message, pending: _Pending) -> bytes:
        """The line that the client gets."""
        fields, result = message.fields, message.fields.get("result")
        shown: Object
        if pending.method not in (*_STARTS, _LIST, *_RESULTS):
            return message.line
        if not isinstance(result, dict):
            await self._finish(pending, "error")
            return encode(visible_values(fields))
        match pending.method:
            case "tools/list":
                tools = result.get("tools")
                shown = {**result, "tools": self._gate.listed(tools if isinstance(tools, list) else [])}
            case "tools/call" | "tasks/result":
                if pending.call:
                    shown = await self._gate.end(pending.call, result, await self._verified())
                else:
                    shown = await self._gate.fitted(result)
            case _:
                shown = dict(result)
                if isinstance(instructions := result.get("instructions"), str):
                    shown["instructions"] = self._gate.definitions.instructions(instructions)
        return message.line if shown == result else encode({**fields, "result": shown})

    async def _list_first(self, params: Object) -> None:
        """List all tools, unless it was done, so that each definition is compared with the pins before a
        client sees or calls a tool. A server that does not answer has no tools."""
        async with self._listing:
            if self._is_listed:
                return
            meta, tools = params.get("_meta"), dict[str, Object]()
            about = meta if isinstance(meta, dict) else {}
            own_meta = {name: about[name] for name in about if name.startswith(_META)}
            page: Object = {"_meta": own_meta} if own_meta else {}
            for _ in range(_MOST_PAGES):
                result = await self._request(self._send, _LIST, page, self._limits.answer)
                if not isinstance(found := result.get("tools"), list):
                    return
                tools = named([*tools.values(), *found])
                if not (cursor := result.get("nextCursor")) or len(tools) == MOST_TOOLS:
                    break
                page = {**page, "cursor": cursor}
            self._gate.listed(list(tools.values()))
            self._is_listed = True

    # --- both -----------------------------------------------------------------------------------------------

    async def _request(
        self, send: Callable[[bytes], Awaitable[None]], method: str, params: Object, seconds: float
    ) -> Object:
        """Make a request of our own; the result is empty if there is none in time."""
        own: Id = f"mcp-toolserver-{secrets.token_hex(8)}"
        question = self._questions[own] = asyncio.get_running_loop().create_future()
        await send(encode({"jsonrpc": "2.0", "id": own, "method": method, "params": params}))
        with anyio.move_on_after(seconds):
            return await question
        return {}

    def _answers(self, message: Message) -> bool:
        """Whether a response is to a request of ours, which gets it."""
        question = self._questions.pop(message.id, None) if message.id is not None else None
        result = message.fields.get("result")
        if question is not None and not question.done():
            question.set_result(result if isinstance(result, dict) else {})
        return question is not None

    async def _send(self, line: bytes) -> None:
        """Send a line to the server, which has to read it in time."""
        if self._gone:
            return
        if not self._sending.locked():
            # Most lines fit into the pipe.
            line = line[self._process.stdin.try_write(line) :]
        if not line:
            return
        try:
            async with self._sending:
                with anyio.fail_after(self._limits.answer):
                    await self._process.stdin.write(line)
        except TimeoutError:
            await self._leave("does not read what it is sent")
        except Unavailable:
            # `_from_server` finds out how it ended.
            return

    async def _tell(self, line: bytes) -> None:
        """Send a line to the client; if it stopped reading, everything ends."""
        try:
            await self._write(line)
        except anyio.ClosedResourceError:
            self._working.cancel()

    def _pop(self, of: Id) -> _Pending | None:
        pending = self._pending.pop(of, None)
        self._settled.set()
        return pending

    async def _forget(self, of: JsonValue) -> None:
        """The client gave a request up: no answer to it is passed on."""
        if (found := as_id(of)) is not None and (pending := self._pop(found)):
            await self._finish(pending, "cancelled")

    async def _finish(self, pending: _Pending, outcome: str) -> None:
        if pending.call:
            await self._gate.finish(pending.call, outcome, "")

    async def _expire(self) -> None:
        while True:
            await anyio.sleep(min(1.0, self._limits.answer / 4))
            for of, pending in list(self._pending.items()):
                if pending.deadline < monotonic() and self._pop(of):
                    await self._finish(pending, "timed_out")
                    why = f"The MCP server {self._gate.server} did not answer in time"
                    await self._tell(error(of, INTERNAL, why))

    async def _fail_pending(self, why: str) -> None:
        for of in list(self._pending):
            if pending := self._pop(of):
                await self._finish(pending, "cancelled")
                await self._tell(error(of, CLOSED, why))

    async def _close(self) -> None:
        with anyio.move_on_after(self._limits.exit):
            await self._fail_pending(self._gone or "Connection closed")
        await self._process.end()
