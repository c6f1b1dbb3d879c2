"""What stands between a client and another MCP server, however the two are connected: pins, rules, audit log
and output limits. It knows nothing of JSON-RPC.

A tool is off while its definition waits for approval or a rule denies it: it is not listed, and calls of it
are refused with the reason.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import LOCAL, ROOM, Room, SavedOutput
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import ToolError
from mcp_toolserver.gateway.definitions import Definitions, Reach, presented
from mcp_toolserver.pipeline import call_record
from mcp_toolserver.pipeline.approvals import Approve, Ask, Inquiry
from mcp_toolserver.pipeline.call_record import CallRecord, Recorder
from mcp_toolserver.policy.rules import FOREIGN, Policy, Request, Rule, Subject, Verdict
from mcp_toolserver.text.file_names import path_spellings
from mcp_toolserver.text.json_values import texts_in
from mcp_toolserver.text.lines.encoding import head_bytes
from mcp_toolserver.text.lines.escape_invisible import visible_values

Object = dict[str, JsonValue]

_ABOUT = 8


class Refused(Exception):
    """The call must not run; the text is a sentence for the caller."""


@dataclass(kw_only=True, eq=False)
class Gate:
    definitions: Definitions
    reach: Reach
    policy: Policy
    rules: Callable[[Sequence[str]], Sequence[Rule]]
    """Parses rules; omits those that cannot be parsed."""
    approve: Approve
    """Gets an answer where the policy asks."""
    roots: Sequence[str]
    folder: str
    """Where the server was started: relative paths begin there."""
    recorder: Recorder
    save: Callable[[str], Awaitable[SavedOutput]]
    """Saves a whole text. Raises: OSError."""
    escapes: bool = True
    """Whether to show what is invisible in results as escapes; in definitions it always is."""
    room: Room = ROOM

    @property
    def server(self) -> str:
        """The name of the server."""
        return self.definitions.server

    def listed(self, tools: Sequence[JsonValue]) -> list[JsonValue]:
        """The definitions that clients get, of those that the server lists now."""
        return [
            presented(tool, self.reach, self.server)
            for name, tool in self.definitions.approved(tools).items()
            if self._decide(name, {}).action != "refuse"
        ]

    async def begin(self, tool: str, sent: Object, session: str, ask: Ask) -> CallRecord:
        """Decide on a call and announce it to the audit log. Raises: Refused: it must not run."""
        places = [text for text in texts_in(sent) if "/" in text and text.isprintable() and " " not in text]
        call = CallRecord(
            name=tool,
            tool=self._rule_name(tool),
            session=session,
            arguments=sent,
            needs=frozenset({Capability.PROCESS}),
            about=tuple(places[:_ABOUT]),
            permission=self.reach.mode,
            duration_ms=-time.monotonic() * 1000,
        )
        if why := await call_record.begin(self.recorder, call):
            raise Refused(why)
        try:
            await self._authorize(call, sent, ask)
        except BaseException as error:
            refused = isinstance(error, Refused)
            await self.finish(call, "denied" if refused else "cancelled", str(error) if refused else "")
            raise
        return call

    async def end(self, call: CallRecord, result: Object, notes: Sequence[str]) -> Object:
        """The result that the client gets: escaped, cut to the room, with `notes`. It is recorded."""
        shown = await self.fitted(result)
        if notes:
            content = shown.get("content")
            note: JsonValue = {"type": "text", "text": "\n".join(f"[{note}]" for note in notes)}
            shown["content"] = [*(content if isinstance(content, list) else ()), note]
        why = await self.finish(call, "error" if shown.get("isError") else "output", json.dumps(shown))
        return failure(why) if why else shown

    async def finish(self, call: CallRecord, outcome: str, text: str) -> str | None:
        """Record a call that has ended; returns why its result is withheld, if it could not be recorded."""
        call.duration_ms += time.monotonic() * 1000
        call.outcome, call.text = outcome, text
        return await call_record.end(self.recorder, (), call)

    async def fitted(self, result: Object) -> Object:
        """The result with its texts escaped and, if they are too long together, cut and saved."""
        shown = {name: result[name] for name in ("content", "structuredContent") if name in result}
        shown = {**result, **(visible_values(shown) if self.escapes else deepcopy(shown))}
        texts = _texts(shown.get("content"))
        size = sum(map(_size, texts))
        structured = json.dumps(shown.get("structuredContent", ""), ensure_ascii=False)
        if max(size, len(structured)) <= self.room.bytes:
            return shown
        try:
            saved = await self.save("\n".join(str(one["text"]) for one in texts) if size else structured)
            where = f"the whole text is in {saved.path} until this server ends"
        except OSError as error:
            where = f"it could not be saved, because {error.strerror or error}"
        note = f"bytes are left out; {where}. Or ask for less.]"
        if len(structured) > self.room.bytes:
            # Part of a record does not have the form that its schema promises.
            return failure(f"The result is too long. [{len(structured)} {note}")
        left = self.room.bytes - len(note) - 20
        for one in texts:
            one["text"] = head_bytes(str(one["text"]), max(left, 0))
            left -= _size(one)
        last = [one for one in texts if one["text"]][-1]
        last["text"] = f"{last['text']}\n[{size - sum(map(_size, texts))} {note}"
        return shown

    async def _authorize(self, call: CallRecord, sent: Object, ask: Ask) -> None:
        """Raises: Refused."""
        tool = call.name
        call.verdict = "refused-off"
        if tool not in self.definitions.known:
            call.verdict = "unknown"
            raise Refused(f"{self.server} does not list a tool {tool!r}.")
        if why := self.definitions.why_off(tool):
            raise Refused(why)
        verdict = self._decide(tool, sent)
        call.rule = verdict.rule
        if verdict.action == "refuse":
            call.verdict = "refused-rule"
            raise Refused(verdict.reason)
        call.verdict = "allowed"
        if verdict.action == "ask":
            call.verdict = "asked"
            inquiry = Inquiry(
                call=call,
                request=self._request(tool, sent),
                arguments=sent,
                owner=LOCAL,
                roots=(self.folder, *self.roots),
                policy=self.policy,
                reason=verdict.reason,
                rules=self.rules,
            )
            try:
                if why := await self.approve(inquiry, ask):
                    raise Refused(why)
            except ToolError as error:
                raise Refused(str(error)) from None

    def _decide(self, tool: str, sent: Object) -> Verdict:
        return self.policy.decide(self._request(tool, sent))

    def _request(self, tool: str, sent: Object) -> Request:
        return Request(
            tool=self._rule_name(tool),
            level=self.reach.mode,
            subjects=tuple(self._subjects(sent)),
            through=f"{FOREIGN}{_word(self.server)}",
        )

    def _rule_name(self, tool: str) -> str:
        return f"{FOREIGN}{_word(self.server)}__{_word(tool)}"

    def _subjects(self, sent: JsonValue) -> Iterator[Subject]:
        """Each text in the arguments; one that may be a path also as the absolute one, and relative to its
        root."""
        return (path_spellings(text, self.folder, self.roots) for text in texts_in(sent))


def failure(text: str) -> Object:
    """The result of a call that failed."""
    # The stateless protocol requires a type; in the others a result may have any further field.
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": True}


def _texts(content: JsonValue) -> list[Object]:
    """The objects with a text among content blocks and in their resources."""
    blocks = content if isinstance(content, list) else []
    resources = [block.get("resource") for block in blocks if isinstance(block, dict)]
    return [
        one for one in (*blocks, *resources) if isinstance(one, dict) and isinstance(one.get("text"), str)
    ]


def _size(holder: Object) -> int:
    return len(str(holder["text"]).encode(errors="replace"))


def _word(name: str) -> str:
    """A name as rules spell it."""
    return re.sub(r"[^\w-]", "_", name, flags=re.ASCII)
