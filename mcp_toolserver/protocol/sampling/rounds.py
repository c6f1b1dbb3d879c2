"""The model of a stateless client (2026-07-28): a call that uses it is answered in rounds.

The call runs apart from its requests. When it needs the model, the open request is answered with "input
required"; the client sends the call again with what its model said, under a state that is sealed and valid
once, and the call goes on. The SDKs' clients give up after ten rounds, so the last turns have no tools: the
agent must answer with what it has.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import mcp_types as mcp

from mcp_toolserver.capabilities.model import ModelRequest, ModelTurn
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.protocol.sampling.messages import (
    NO_REQUEST,
    TURN_SECONDS,
    Sampled,
    create_message,
    declined,
    not_answered,
    turn_of,
)
from mcp_toolserver.runtime.background import Background

if TYPE_CHECKING:
    from mcp_toolserver.protocol.handlers import RoundsClient

MAX_ROUNDS = 10
"""Rounds of one call, which clients limit."""

LAST_TURNS = 9
"""From this round on, turns have no tools. The tenth is for the parent of an agent that used the ninth."""

CALLS = 32
"""Calls in rounds at the same time."""

CALLS_OF_ONE = 8
"""Those of one client."""

_KEY = "turn-"

_EXHAUSTED = (
    f"The client's model answers at most {MAX_ROUNDS} times in one call, and has done so. Start the agent "
    "again with what is left to do."
)


@dataclass(eq=False)
class _Question:
    """A turn that the model is asked for."""

    request: ModelRequest
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: object = None
    round: int = 0
    """The round in which it was asked; 0 before."""

    @property
    def is_last(self) -> bool:
        return self.round >= LAST_TURNS


class RoundCall:
    """A call that runs apart from its requests; implements `Model`.

    Args:
        params: of its first request.
        rounds: how many rounds the call has had already, for questions to the user.
    """

    def __init__(self, client: "RoundsClient", params: mcp.CallToolRequestParams, *, rounds: int) -> None:
        self.client = client
        self.result: Result | None = None
        """None before the end, and if it was cancelled."""
        self.has_ended = False
        self.running: asyncio.Task[None] | None = None
        self._same = (client.owner, params.name, params.arguments)
        self._rounds = rounds
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._news = anyio.Event()

    def is_for(self, owner: str, params: mcp.CallToolRequestParams) -> bool:
        return self._same == (owner, params.name, params.arguments)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        if self.has_ended:
            raise Unavailable(NO_REQUEST)
        self._asked += 1
        key = f"{_KEY}{self._asked}"
        self._questions[key] = question = _Question(request)
        self._news.set()
        try:
            with anyio.fail_after(TURN_SECONDS):
                await question.answered.wait()
        except TimeoutError:
            raise not_answered() from None
        finally:
            del self._questions[key]
        if question.answer is _EXHAUSTED:
            raise Unavailable(_EXHAUSTED)
        if not isinstance(question.answer, Sampled):
            raise declined()
        return turn_of(question.answer, request, last=question.is_last)

    async def run(self, work: Callable[[], Awaitable[Result]]) -> None:
        try:
            self.result = await work()
        finally:
            self.has_ended = True
            self._news.set()

    def take(self, responses: Mapping[str, object]) -> None:
        """Pass on what the client answered to the questions of the last round."""
        for key, question in self._questions.items():
            if question.round and not question.answered.is_set():
                question.answer = responses.get(key)
                question.answered.set()

    async def next_questions(self) -> dict[str, mcp.InputRequest]:
        """Wait for the questions of the next round; none if the call has ended."""
        while not self.has_ended:
            new = {key: one for key, one in self._questions.items() if not one.round}
            if new and self._rounds < MAX_ROUNDS:
                self._rounds += 1
                for question in new.values():
                    question.round = self._rounds
                return {key: create_message(one.request, last=one.is_last) for key, one in new.items()}
            for question in new.values():
                question.round, question.answer = self._rounds, _EXHAUSTED
                question.answered.set()
            self._news = anyio.Event()
            await self._news.wait()
        return {}

    def cancel(self) -> None:
        """Cancel the call, and with it all that it runs."""
        assert self.running is not None
        self.running.cancel()


class Rounds:
    """The calls of one server that run in rounds."""

    def __init__(self) -> None:
        self._calls: set[RoundCall] = set()
        self._waiting: dict[str, RoundCall] = {}
        """Calls that wait for the client, by the state that it has to send."""

    def has_room(self, owner: str) -> bool:
        """Whether a client may start another call."""
        of_one = sum(call.client.owner == owner for call in self._calls)
        return len(self._calls) < CALLS and of_one < CALLS_OF_ONE

    def start(self, call: RoundCall, work: Callable[[], Awaitable[Result]], background: Background) -> None:
        """Start a call, which is cancelled with the server."""

        async def run() -> None:
            try:
                await call.run(work)
            finally:
                self._calls.discard(call)
                for state in [state for state, one in self._waiting.items() if one is call]:
                    del self._waiting[state]

        self._calls.add(call)
        call.running = background.start(run, name="a call with the client's model")

    def continued(self, owner: str, params: mcp.CallToolRequestParams) -> RoundCall | None:
        """The call that a request goes on with, which gets its answers; None if there is none.

        A state is valid once, for the client that got it and for the same call.
        """
        call = self._waiting.get(params.request_state or "")
        if call is None or not call.is_for(owner, params):
            return None
        del self._waiting[params.request_state or ""]
        call.take(params.input_responses or {})
        return call

    async def answer(self, call: RoundCall) -> Result | mcp.InputRequiredResult:
        """Wait until the call ends or needs the model; cancelling the wait cancels the call."""
        try:
            questions = await call.next_questions()
        except anyio.get_cancelled_exc_class():
            call.cancel()
            raise
        if questions:
            state = secrets.token_hex(16)
            self._waiting[state] = call
            return mcp.InputRequiredResult(input_requests=questions, request_state=state)
        return call.result or Result(text="The call was cancelled.", error=Unavailable.kind)

    def forget(self, owner: str) -> None:
        """Cancel the calls of a client that does not come back."""
        for call in list(self._calls):
            if call.client.owner == owner:
                call.cancel()


def answers_turns(params: mcp.CallToolRequestParams) -> bool:
    """Whether a request brings what a model said."""
    return any(key.startswith(_KEY) for key in params.input_responses or {})
