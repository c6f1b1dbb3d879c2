"""Asks the user of the client (elicitation), and sends them messages.

In the handshake protocol (<= 2025-11-25) the server sends the question and waits. In the stateless protocol
(2026-07-28) the call returns "input required", and the client repeats it with the answer. The state for that
is sealed, bound to the exact call, and valid once. A call with several questions is repeated for each; this
module stores the earlier answers under that state.

Messages are MCP log messages, the only unsolicited text that the protocol allows. In the handshake protocol a
client gets all of them until it sets a level. In the stateless protocol each request names the level, and
without one nothing is sent. The result of the call carries the same text.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import anyio
import mcp_types as mcp
from mcp.server.connection import Connection, allowed_log_levels
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least
from pydantic import JsonValue

from mcp_toolserver.capabilities.user import Answers, ForeignQuestion, FormContent, Question
from mcp_toolserver.errors import Denied, NobodyToAsk, TimedOut, Unavailable
from mcp_toolserver.pipeline.call import InputRequired
from mcp_toolserver.protocol.client_identity import ask_client, state_of
from mcp_toolserver.protocol.translate import MODERN, Context, is_stateless
from mcp_toolserver.text.json_values import is_list

APPROVAL = "approval"
"""Key of the question whether a call may run."""

ANSWERS = "answers"
"""Key of the questions of a tool."""

FORWARDED = "forwarded"
"""Key of the questions of another server."""

STATE_SECONDS = 600.0
"""How long a client may take to answer in the stateless protocol."""

_OUTSTANDING = 1024
"""Maximum questions that wait for an answer; the oldest is dropped, and its answer counts as no."""

_LISTS_SINCE = "2025-11-25"
"""The revision that added fields with several answers."""

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "title": "Decision", "enum": ["allow", "deny"]}},
    "required": ["decision"],
}

MAX_CHARACTERS = 4_000
"""Maximum characters of a free-text answer."""

LEVEL: mcp.LoggingLevel = "notice"
LOGGER = "message to the user"

_LEVELS: tuple[str, ...] = get_args(mcp.LoggingLevel)
"""The least urgent first."""

_LEVEL = "mcp_toolserver.log_level"
"""The key of the least urgent level in the state of a connection."""

Said = Mapping[str, mcp.ElicitResult | None]
"""Answers by the digest of their question; None if there was no answer."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    key: str
    digest: str
    deadline: float
    earlier: Said = field(default_factory=dict[str, mcp.ElicitResult | None])


class Questions:
    """Questions sent to stateless clients: each can be answered once, and only for the same question."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, _Asked] = OrderedDict()

    def ask(self, key: str, request: mcp.ElicitRequest, earlier: Said) -> mcp.InputRequiredResult:
        """Return the result that makes the client ask its user. `earlier` has the earlier answers."""
        nonce = secrets.token_hex(16)
        self._asked[nonce] = _Asked(
            key=key, digest=digest(request), deadline=time.monotonic() + STATE_SECONDS, earlier=earlier
        )
        while len(self._asked) > _OUTSTANDING:
            self._asked.popitem(last=False)
        return mcp.InputRequiredResult(input_requests={key: request}, request_state=nonce)

    def answered(self, state: str | None, responses: Mapping[str, object]) -> Said:
        """The answers to the question of `state` and the earlier ones; empty for an unknown state."""
        asked = self._asked.pop(state or "", None)
        if asked is None or time.monotonic() > asked.deadline:
            return {}
        answer = responses.get(asked.key)
        return {**asked.earlier, asked.digest: answer if isinstance(answer, mcp.ElicitResult) else None}


@dataclass(eq=False)
class Asker:
    """Asks the user on behalf of one call."""

    context: Context
    params: mcp.InputResponseRequestParams
    questions: Questions
    seconds: float
    said: Said | None = None
    pending: mcp.InputRequiredResult | None = None
    """The reply to send when a question raised `InputRequired`."""

    async def ask(self, question: str) -> bool | None:
        """Ask whether the call may run; None if nobody can be asked, or answered in time.

        Raises:
            InputRequired: see `answer`.
        """
        try:
            answer = await self.answer(APPROVAL, _request(question, _FORM))
        except (NobodyToAsk, TimedOut):
            return None
        return answer is not None and answer.action == "accept" and answer.content == {"decision": "allow"}

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        """See `Ask`. Raises: InputRequired: see `answer`."""
        if not questions and self.can_be_asked():
            return ()
        form = Form(questions=questions, lists=self._speaks(_LISTS_SINCE))
        answer = await self.answer(ANSWERS, _request(form.message, form.schema))
        if answer is None or answer.action == "cancel":
            raise Denied("The user closed the question without an answer. Do not ask it again unprompted.")
        if answer.action == "decline":
            raise Denied("The user would not answer. Go on without it, or say what you cannot do without it.")
        answers = form.answers(answer.content or {})
        if answers is None:
            raise Unavailable(
                "What the client sent back is no answer to what was asked, so it was not used. Ask in words, "
                "without options, or go on without an answer."
            )
        return answers

    async def forward(self, question: ForeignQuestion) -> FormContent | None:
        """See `Caller.forward`."""
        request = _request(question.text, question.schema)
        if question.url:
            about = {"message": question.text, "url": question.url, "elicitation_id": secrets.token_hex(16)}
            request = mcp.ElicitRequest(params=mcp.ElicitRequestURLParams.model_validate(about))
        answer = await self.answer(FORWARDED, request)
        return None if answer is None or answer.action != "accept" else answer.content or {}

    async def tell(self, message: str) -> bool:
        """Send `message` within the call; returns whether the client wants it."""
        if not _wants_messages(self.context):
            return False
        params = mcp.LoggingMessageNotificationParams(level=LEVEL, logger=LOGGER, data=message)
        notification = mcp.LoggingMessageNotification(params=params)
        await self.context.session.send_notification(notification, self.context.request_id)
        return True

    async def answer(self, key: str, request: mcp.ElicitRequest) -> mcp.ElicitResult | None:
        """The user's answer to a request; None if the client returned none.

        Raises:
            NobodyToAsk: the client cannot ask.
            TimedOut: it did not answer in time.
            InputRequired: it has to answer first.
        """
        if not self.can_be_asked(request):
            raise NobodyToAsk
        if not self._speaks(MODERN):
            try:
                with anyio.fail_after(self.seconds):
                    return await ask_client(self.context, request, mcp.ElicitResult)
            except TimeoutError:
                raise unanswered(self.seconds) from None
            except (MCPError, ValueError):
                raise NobodyToAsk from None
        if self.said is None:
            responses = self.params.input_responses or {}
            self.said = self.questions.answered(self.params.request_state, responses)
        if (asked := digest(request)) in self.said:
            return self.said[asked]
        self.pending = self.questions.ask(key, request, self.said)
        raise InputRequired

    def _speaks(self, version: str) -> bool:
        return is_version_at_least(self.context.protocol_version, version)

    def can_be_asked(self, request: mcp.ElicitRequest | None = None) -> bool:
        """Whether the client takes the request, or forms. One that declares elicitation without a mode means
        forms."""
        declared = self.context.session.client_capabilities
        elicitation = declared and declared.elicitation
        if request and isinstance(request.params, mcp.ElicitRequestURLParams):
            return elicitation is not None and elicitation.url is not None
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def set_level(context: Context, params: mcp.SetLevelRequestParams) -> mcp.EmptyResult:
    """Handle `logging/setLevel`, which asks for messages at or above a level on this connection."""
    state_of(context)[_LEVEL] = params.level
    return mcp.EmptyResult()


def _wants_messages(context: Context) -> bool:
    if is_stateless(context):
        return LEVEL in allowed_log_levels(context.protocol_version, context.meta)
    return _is_loud_enough(state_of(context))


def _is_loud_enough(state: Mapping[str, Any]) -> bool:
    return _LEVELS.index(LEVEL) >= _LEVELS.index(state.get(_LEVEL, _LEVELS[0]))


async def notify(connection: Connection, message: str) -> None:
    """Send `message` to the client of a handshake connection outside of any call, if it wants messages."""
    if _is_loud_enough(connection.state):
        params = mcp.LoggingMessageNotificationParams(level=LEVEL, logger=LOGGER, data=message)
        wire = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        await connection.notify("notifications/message", wire)


def unanswered(seconds: float) -> TimedOut:
    return TimedOut(
        f"The user did not answer within {seconds:g} s. Go on without an answer, or ask again when they are "
        "back."
    )


def digest(request: mcp.ElicitRequest) -> str:
    return hashlib.sha256(request.model_dump_json().encode()).hexdigest()


def _request(message: str, schema: Mapping[str, Any]) -> mcp.ElicitRequest:
    return mcp.ElicitRequest(
        params=mcp.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
    )


@dataclass(frozen=True, kw_only=True)
class Form:
    """An elicitation form: questions, and whether one field may have several answers (`lists`).

    It is flat: one field for each question. For clients older than multi-select fields, each choice becomes a
    field of its own. Content that does not match the form exactly is rejected.
    """

    questions: Sequence[Question]
    lists: bool

    @property
    def message(self) -> str:
        """The questions and choices as text, for clients that show little of the fields."""
        if len(self.questions) == 1:
            return _text(self.questions[0])
        return "\n\n".join(f"{n}. {_text(question)}" for n, question in enumerate(self.questions, start=1))

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The fields, as JSON Schema."""
        properties = {name: shape for fields in self._fields for name, shape in fields.items()}
        required: list[JsonValue] = [
            name
            for question, fields in zip(self.questions, self._fields, strict=True)
            for name, shape in fields.items()
            if question.required and shape["type"] != "boolean"
        ]
        return {"type": "object", "properties": {**properties}, "required": required}

    def answers(self, content: FormContent) -> Answers | None:
        """The answers; None if the content does not match the form."""
        if content.keys() - {name for fields in self._fields for name in fields}:
            return None
        found = [
            _answer(question, [content.get(name) for name in fields])
            for question, fields in zip(self.questions, self._fields, strict=True)
        ]
        answers = tuple(answer for answer in found if answer is not None)
        return answers if len(answers) == len(found) else None

    @cached_property
    def _fields(self) -> list[dict[str, dict[str, JsonValue]]]:
        return [
            self._fields_of(question, f"answer_{n}") for n, question in enumerate(self.questions, start=1)
        ]

    def _fields_of(self, question: Question, name: str) -> dict[str, dict[str, JsonValue]]:
        if question.several and not self.lists:
            choices = enumerate(question.choices, start=1)
            return {
                f"{name}_{n}": {"type": "boolean", "title": choice.label, "description": choice.description}
                for n, choice in choices
            }
        title = question.header or question.text[:100]
        return {name: {"title": title, "description": question.text, **_shape(question)}}


def _shape(question: Question) -> dict[str, JsonValue]:
    labels: list[JsonValue] = [choice.label for choice in question.choices]
    if question.several:
        return {"type": "array", "items": {"type": "string", "enum": labels}}
    return {"type": "string", "enum": labels} if labels else {"type": "string", "maxLength": MAX_CHARACTERS}


def _text(question: Question) -> str:
    choices = (": ".join(filter(None, (choice.label, choice.description))) for choice in question.choices)
    return question.text + "".join(f"\n- {choice}" for choice in choices)


def _answer(question: Question, values: Sequence[object]) -> tuple[str, ...] | None:
    """The answer to one question; None if it is invalid."""
    if question.several:
        return _chosen(question, values)
    value = values[0]
    if value is None or value == "":
        return None if question.required else ()
    labels = [choice.label for choice in question.choices]
    fits = isinstance(value, str) and (value in labels if labels else len(value) <= MAX_CHARACTERS)
    return (str(value),) if fits else None


def _chosen(question: Question, values: Sequence[object]) -> tuple[str, ...] | None:
    """The chosen labels, in the order in which they were offered."""
    labels = [choice.label for choice in question.choices]
    if all(value is None or isinstance(value, bool) for value in values) and len(values) == len(labels):
        return tuple(label for label, value in zip(labels, values, strict=True) if value)
    chosen = values[0]
    if not is_list(chosen) or any(one not in labels for one in chosen):
        return None
    return tuple(label for label in labels if label in chosen)
