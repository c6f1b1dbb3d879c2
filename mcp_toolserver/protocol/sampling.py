"""Uses the client's model (sampling): translates a turn to `sampling/createMessage` and back.

A client with a handshake is asked over the open connection, while the call runs. For a stateless client
(2026-07-28), a call that uses its model is answered in rounds: the call runs apart from its requests. When it
needs the model, the open request is answered with "input required"; the client sends the call again with what
its model said, under a state that is sealed and valid once, and the call goes on. The SDKs' clients give up
after ten rounds, so the last turns have no tools: the agent must answer with what it has.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from mcp_toolserver.capabilities.model import (
    Message,
    ModelLimits,
    ModelRequest,
    ModelTurn,
    ToolCall,
    UserText,
)
from mcp_toolserver.errors import TimedOut, Unavailable
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.protocol.client_identity import ask_client
from mcp_toolserver.protocol.handlers import Client, Handlers
from mcp_toolserver.protocol.translate import Context
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.runtime.models.model import estimated_tokens

TURN_SECONDS = 600.0
"""How long a client may take for a turn, in which its user may have to approve."""

NO_REQUEST = (
    "The client's model answers only while the client waits for the call that uses it. Start the agent again "
    "without run_in_background, or ask the operator to configure a model in [agent]."
)

_DECLINED = (
    "The client did not let its model answer; its user may have declined. Do the work without an "
    "agent, or ask the user."
)
_NOT_ANSWERED = f"The client's model did not answer within {TURN_SECONDS:g} s."

LAST_TURN = (
    "This is your last turn, and you cannot call tools in it. Answer with what you have found and done, "
    "and say what is left."
)
"""Added to the system prompt of a turn after which the client would not answer again."""

MAX_ROUNDS = 10
"""Rounds of one call, which clients limit."""

LAST_TURNS = 9
"""From this round on, turns have no tools. The tenth is for the parent of an agent that used the ninth."""

CALLS = 32
"""Calls in rounds at the same time."""

CALLS_OF_ONE = 8
"""Those of one client."""

_KEY = "turn-"

EXHAUSTED = f"its client's model answers at most {MAX_ROUNDS} times in one call, and has done so"

_CUT = ("maxTokens", "max_tokens", "length")
_WITHHELD = ("refusal", "content_filter", "contentFilter")
"""Reasons to stop: the protocol names the first, and clients pass on those of their providers."""

Sampled = mcp.CreateMessageResult | mcp.CreateMessageResultWithTools


def create_message(request: ModelRequest, *, last: bool = False) -> mcp.CreateMessageRequest:
    """The request for a turn; one without tools if it is the `last`."""
    system = f"{request.system}\n\n{LAST_TURN}" if last else request.system
    tools = [
        mcp.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.schema))
        for tool in request.tools
    ]
    return mcp.CreateMessageRequest(
        params=mcp.CreateMessageRequestParams(
            messages=list(_messages(request.messages)),
            system_prompt=system or None,
            max_tokens=request.max_tokens,
            tools=None if last or not tools else tools,
            model_preferences=mcp.ModelPreferences(hints=[mcp.ModelHint(name=request.model)])
            if request.model
            else None,
        )
    )


def turn_of(result: Sampled, request: ModelRequest, *, last: bool = False) -> ModelTurn:
    """The turn that a client answered; no calls if it is the `last`. Raises: Unavailable: it is no answer."""
    content = result.content if isinstance(result.content, list) else [result.content]
    text = "".join(block.text for block in content if isinstance(block, mcp.TextContent))
    calls = tuple(
        ToolCall(id=block.id, name=block.name, arguments=block.input)
        for block in content
        if isinstance(block, mcp.ToolUseContent) and not last
    )
    if result.stop_reason in _WITHHELD:
        raise Unavailable("The client's model refused to answer. Change the task.")
    if result.stop_reason == "toolUse" and not (calls or last):
        raise Unavailable("The client's model stopped for a call and made none. Try again.")
    if not (text or calls or last):
        raise Unavailable("The client's model answered without text and without a call. Try again.")
    into, out = estimated_tokens(request, text, calls)
    return ModelTurn(
        text=text,
        calls=calls,
        input_tokens=into,
        output_tokens=out,
        is_cut=result.stop_reason in _CUT,
        limit=EXHAUSTED if last else "",
    )


@dataclass(frozen=True)
class BackChannelModel:
    """Implements `Model` for the time of one request."""

    context: Context
    is_open: Callable[[], bool]
    """Whether the request is not answered yet; afterwards no turn is possible."""

    def limits(self, model: str, agent_type: str) -> ModelLimits:
        return ModelLimits()

    async def turn(self, request: ModelRequest) -> ModelTurn:
        if not self.is_open():
            raise Unavailable(NO_REQUEST)
        asked = create_message(request)
        result_type = mcp.CreateMessageResultWithTools if asked.params.tools else mcp.CreateMessageResult
        try:
            with anyio.fail_after(TURN_SECONDS):
                result = await ask_client(self.context, asked, result_type)
        except TimeoutError:
            raise TimedOut(_NOT_ANSWERED) from None
        except (MCPError, ValueError):
            raise Unavailable(_DECLINED) from None
        return turn_of(result, request)


def _messages(messages: Sequence[Message]) -> Iterator[mcp.SamplingMessage]:
    for message in messages:
        match message:
            case UserText():
                yield mcp.SamplingMessage(role="user", content=_text(message.text))
            case ModelTurn():
                content: list[mcp.SamplingMessageContentBlock] = [_text(message.text)] if message.text else []
                for call in message.calls:
                    given = call.arguments
                    arguments = {"invalid": given} if isinstance(given, str) else dict(given)
                    content.append(mcp.ToolUseContent(id=call.id, name=call.name, input=arguments))
                if content:
                    yield mcp.SamplingMessage(role="assistant", content=content)
            case _:
                replies: list[mcp.SamplingMessageContentBlock] = [
                    mcp.ToolResultContent(
                        tool_use_id=reply.id, content=[_text(reply.text)], is_error=reply.is_error or None
                    )
                    for reply in message
                ]
                yield mcp.SamplingMessage(role="user", content=replies)


def _text(text: str) -> mcp.TextContent:
    return mcp.TextContent(text=text)


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


class RoundCall(Client):
    """A call that runs apart from its requests, which come one after the other; implements `Model`."""

    def __init__(self, handlers: Handlers, context: Context, params: mcp.CallToolRequestParams) -> None:
        super().__init__(handlers, context, params)
        self.result: Result | None = None
        """None before the end, and if it was cancelled."""
        self.has_ended = False
        self.cancel: Callable[[], object] = lambda: None
        """Cancels the call, and with it all that it runs."""
        self.rounds = 1 if params.request_state else 0
        """The rounds so far; a question to the user takes one."""
        self.call = (self.owner, params.name, params.arguments)
        """Who calls what; each request of the call has the same."""
        self._turns: dict[str, _Question] = {}
        self._asked = 0
        self._news = anyio.Event()

    def open(self, context: Context) -> None:
        """`context` is the request that is open now."""
        self.context, self.is_open = context, True

    def sampling(self) -> "RoundCall":
        return self

    def limits(self, model: str, agent_type: str) -> ModelLimits:
        return ModelLimits()

    async def turn(self, request: ModelRequest) -> ModelTurn:
        if self.has_ended:
            raise Unavailable(NO_REQUEST)
        self._asked += 1
        key = f"{_KEY}{self._asked}"
        self._turns[key] = question = _Question(request)
        self._news.set()
        try:
            with anyio.fail_after(TURN_SECONDS):
                await question.answered.wait()
        except TimeoutError:
            raise TimedOut(_NOT_ANSWERED) from None
        finally:
            del self._turns[key]
        if question.answer is EXHAUSTED:
            return ModelTurn(text="", limit=EXHAUSTED)
        if not isinstance(question.answer, Sampled):
            raise Unavailable(_DECLINED)
        return turn_of(question.answer, request, last=question.is_last)

    async def run(self, work: Callable[[], Awaitable[Result]]) -> None:
        try:
            self.result = await work()
        finally:
            self.has_ended = True
            self._news.set()

    def take(self, responses: Mapping[str, object]) -> None:
        """Pass on what the client answered to the questions of the last round."""
        for key, question in self._turns.items():
            if question.round and not question.answered.is_set():
                question.answer = responses.get(key)
                question.answered.set()

    async def next_questions(self) -> dict[str, mcp.InputRequest]:
        """Wait for the questions of the next round; none if the call has ended."""
        while not self.has_ended:
            new = {key: one for key, one in self._turns.items() if not one.round}
            if new and self.rounds < MAX_ROUNDS:
                self.rounds += 1
                for question in new.values():
                    question.round = self.rounds
                return {key: create_message(one.request, last=one.is_last) for key, one in new.items()}
            for question in new.values():
                question.round, question.answer = self.rounds, EXHAUSTED
                question.answered.set()
            self._news = anyio.Event()
            await self._news.wait()
        return {}


class Rounds:
    """The calls of one server that run in rounds."""

    def __init__(self) -> None:
        self._calls: set[RoundCall] = set()
        self._waiting: dict[str, RoundCall] = {}
        """Calls that wait for the client, by the state that it has to send."""

    def has_room(self, owner: str) -> bool:
        """Whether a client may start another call."""
        of_one = sum(call.owner == owner for call in self._calls)
        return len(self._calls) < CALLS and of_one < CALLS_OF_ONE

    def start(self, call: RoundCall, work: Callable[[], Awaitable[Result]], background: Background) -> None:
        """Start a call, which is cancelled with the server."""

        async def run() -> None:
            try:
                await call.run(work)
            finally:
                self._calls.discard(call)
                self._waiting = {state: one for state, one in self._waiting.items() if one is not call}

        self._calls.add(call)
        call.cancel = background.start(run, name="a call with the client's model").cancel

    def continued(self, owner: str, params: mcp.CallToolRequestParams) -> RoundCall | None:
        """The call that a request goes on with, which gets its answers; None if there is none.

        A state is valid once, for the client that got it and for the same call.
        """
        state = params.request_state or ""
        call = self._waiting.get(state)
        if call is None or call.call != (owner, params.name, params.arguments):
            return None
        del self._waiting[state]
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
            if call.owner == owner:
                call.cancel()


def answers_turns(params: mcp.CallToolRequestParams) -> bool:
    """Whether a request brings what a model said."""
    return any(key.startswith(_KEY) for key in params.input_responses or {})
