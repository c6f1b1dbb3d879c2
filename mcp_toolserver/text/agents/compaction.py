"""Chooses what of a conversation a request holds, so that it fits into the context of the model.

Results of earlier calls are left out first. Then a summary, which the model writes, replaces all but the last
turns. The task stays as it is, and every call has its reply. The conversation itself stays whole.
"""

import json
from dataclasses import replace

from mcp_toolserver.capabilities.model import Message, ModelLimits, ModelTurn, ToolReply, UserText
from mcp_toolserver.text.agents.conversation import Conversation, size_of
from mcp_toolserver.text.lines.encoding import head_bytes, tail_bytes

KEPT_TURNS = 3
"""The last turns, whose results stay and which no summary replaces, unless they are too long themselves."""

GOAL = 0.6
"""How full the context may be after compaction, so that the next one is not due at once."""

WORTH = 0.2
"""Part of the context that a summary should replace, as long as fewer results would do."""

SUMMARY_TOKENS = 50_000
"""Of a conversation, for a request without tools. No cache of the provider holds such a request."""

_BYTES_OF_TOKEN = 3
"""A low estimate, for where the provider does not count tokens."""

_LONGEST_TOKEN = 8
"""Bytes of a token on average at most; whoever counts fewer tokens does not count all."""

_MARGIN = 1.1
"""For estimates from the tokens of another text."""

_FRAME = 100
"""Bytes that a request adds to a message, call or result."""

_SHORT = 200
"""Characters of a result that is never left out."""

_LEAST = 200
"""Bytes of a message that a request without tools cuts."""

SUMMARISE = (
    "Your context is nearly full. Sum up the work so far for yourself; what you leave out is lost to you. "
    "Name the task and all that was asked, every decision with its reason, what was changed and where, what "
    "was found out, what is still open. Keep exact names, paths and numbers. Answer with the summary only."
)


class Context:
    """The requests of one run of an agent."""

    def __init__(
        self, conversation: Conversation, limits: ModelLimits, *, system: str, tools: str, newest: int
    ) -> None:
        """Every request with tools holds `system` and `tools` too; `newest` is the position of the task of
        this run, which stays as well."""
        self.output = min(limits.output, limits.context // 2)
        """Maximum tokens of an answer."""
        self.room = limits.context - self.output
        """Maximum tokens of a request."""
        self._conversation = conversation
        self._system = len(system.encode())
        self._other = self._system + len(tools.encode())
        self._newest = newest
        self._without_results = 0
        """Results before this position are left out."""
        self._counted = (0, 0)
        """Bytes and tokens of the last request and its answer."""

    def messages(self) -> tuple[Message, ...]:
        """What the next request holds of the conversation."""
        return self._until(len(self._conversation.messages))

    def in_words(self, end: int) -> tuple[Message, ...]:
        """The same up to position `end` without calls and results, which some providers refuse in a request
        without tools. Long messages are cut, so that the request fits."""
        first, *rest = self._until(end)
        assert isinstance(first, UserText)
        worded = [one for one in map(_in_words, rest) if one.text.strip()]
        room = self._bytes(min(self.room, SUMMARY_TOKENS)) - self._system - size_of(first)
        worded = worded[-max(room // _LEAST, 1) :]
        most = max(room // max(len(worded), 1), _LEAST)
        return (first, *(replace(one, text=_cut(one.text, most)) for one in worded))

    def count(self, turn: ModelTurn) -> None:
        """Learn from the turn, which was added to the conversation, how many tokens its text has."""
        size = self._size()
        self._counted = (
            (size, max(turn.context_tokens, size // _LONGEST_TOKEN)) if turn.context_tokens else (0, 0)
        )

    def fits(self, part: float = 1.0) -> bool:
        """Whether the next request takes at most this part of the room."""
        return self._tokens() <= self.room * part

    def leave_out_results(self, turns: int, part: float = 1.0) -> bool:
        """Leave out results before the last `turns`, the oldest first, until `fits(part)`; returns whether it
        does."""
        end = self._position(turns)
        step = max((end - self._without_results) // 16, 1)
        while not self.fits(part) and self._without_results < end:
            self._without_results = min(self._without_results + step, end)
        return self.fits(part)

    def summary_end(self, turns: int, *, least: float = 0.0) -> int:
        """The position of the last `turns`, up to which a summary may replace the conversation; 0 if it would
        replace nothing, or less than this part of the room."""
        end = self._position(turns)
        replaced = sum(map(_sent_size, self._until(end)[1:]))
        return end if replaced > self._bytes(self.room) * least else 0

    def shrink(self) -> None:
        """Use less, because the provider found the last request too long."""
        self.room = int(min(self.room, self._tokens()) * GOAL)

    def _tokens(self) -> int:
        """An estimate of the tokens of the next request."""
        size, (counted, tokens) = self._size(), self._counted
        if size >= counted:
            return tokens + int((size - counted) * self._tokens_of_byte)
        return int(size * tokens / counted * _MARGIN)

    def _bytes(self, tokens: int) -> int:
        """A low estimate of the bytes that fit into so many tokens."""
        return int(tokens / self._tokens_of_byte)

    @property
    def _tokens_of_byte(self) -> float:
        """A high estimate for text that was not counted."""
        counted, tokens = self._counted
        return max(1 / _BYTES_OF_TOKEN, tokens / counted * _MARGIN if counted else 0)

    def _size(self) -> int:
        return self._other + sum(map(_sent_size, self.messages()))

    def _summary(self) -> UserText | None:
        every = reversed(self._conversation.messages)
        return next((one for one in every if isinstance(one, UserText) and one.summary_of), None)

    def _beginning(self) -> UserText:
        """The task, and the summary of what followed it."""
        every = self._conversation.messages
        task, summary = every[0], self._summary()
        assert isinstance(task, UserText)
        if summary is None:
            return task
        texts = [task.text, f"Your summary of your work so far:\n{summary.text}"]
        newest = every[self._newest]
        if 0 < self._newest < summary.summary_of and isinstance(newest, UserText):
            texts.append(f"Then you were asked:\n{newest.text}")
        return UserText("\n\n".join(texts))

    def _until(self, end: int) -> tuple[Message, ...]:
        """The messages before position `end`, as requests hold them. The results of one turn take at most
        half of the room for them."""
        first, every, summary = self._beginning(), self._conversation.messages, self._summary()
        most = max(self._bytes(self.room) - self._other - size_of(first), 0) // 2
        found: list[Message] = [first]
        for at in range(summary.summary_of if summary else 1, end):
            message = every[at]
            if isinstance(message, tuple):
                message = _without(message) if at < self._without_results else _shortened(message, most)
            if not isinstance(message, UserText) or not message.summary_of:
                found.append(message)
        return tuple(found)

    def _position(self, turns: int) -> int:
        """That of the last `turns` of the model."""
        every = self._conversation.messages
        turn_positions = [at for at, one in enumerate(every) if isinstance(one, ModelTurn)]
        return turn_positions[-turns] if len(turn_positions) >= turns else 0


def _sent_size(message: Message) -> int:
    """Bytes of a message in a request."""
    parts = len(message) if isinstance(message, tuple) else 1
    if isinstance(message, ModelTurn):
        parts += len(message.calls)
    return size_of(message) + parts * _FRAME


def _without(replies: tuple[ToolReply, ...]) -> tuple[ToolReply, ...]:
    """The results without what they said, unless that is short."""
    return tuple([one if len(one.text) <= _SHORT else replace(one, text=_left_out(one)) for one in replies])


def _left_out(reply: ToolReply) -> str:
    return (
        f"[{len(reply.text):,} characters are left out to make room. Make the call again if you need them.]"
    )


def _shortened(replies: tuple[ToolReply, ...], most: int) -> tuple[ToolReply, ...]:
    """The results with at most about `most` bytes together."""
    if size_of(replies) <= most:
        return replies
    return tuple([replace(one, text=_cut(one.text, most // len(replies))) for one in replies])


def _cut(text: str, most: int) -> str:
    """The text, without its middle if it has more than `most` bytes."""
    size = len(text.encode())
    if size <= most:
        return text
    note = f"\n[{size - most:,} bytes more are not shown]\n"
    left = max(most - len(note), 0)
    return f"{head_bytes(text, left * 3 // 4)}{note}{tail_bytes(text, left // 4)}"


def _in_words(message: Message) -> UserText | ModelTurn:
    if isinstance(message, UserText):
        return message
    if isinstance(message, ModelTurn):
        calls = [f"[I called {call.name} {json.dumps(call.arguments)}]" for call in message.calls]
        return replace(message, text="\n".join([message.text, *calls]).strip(), calls=())
    return UserText("\n".join(f"[{reply.name} returned]\n{reply.text}" for reply in message))
