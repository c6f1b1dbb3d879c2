"""Asking the human behind the client, in both eras of the protocol.

With a handshake the server sends the question and waits. Since 2026-07-28 the call itself comes back as
"input required", and the client sends it again with the answer; the state that travels along is sealed, bound
to the exact call, and good for one use. A call that asks more than once takes one turn for each, and what was
answered before is kept here, under that state.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import is_version_at_least

from mcp_toolserver.capabilities.human import Answers, Question
from mcp_toolserver.dispatch import Pending
from mcp_toolserver.errors import Denied, NobodyToAsk, TimedOut, Unavailable
from mcp_toolserver.protocol.forms import Form
from mcp_toolserver.protocol.translate import MODERN

APPROVAL = "approval"
"""Key of the question whether a call may run."""

ANSWERS = "answers"
"""Key of what a tool asks."""

STATE_SECONDS = 600.0
"""How long a client may take to answer in the stateless era."""

_OUTSTANDING = 1024
"""Questions that wait for an answer; beyond, the oldest is forgotten and its answer counts as no."""

_LISTS_SINCE = "2025-11-25"
"""A field with several answers came with this revision."""

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "title": "Decision", "enum": ["allow", "deny"]}},
    "required": ["decision"],
}

Said = Mapping[str, mcp.ElicitResult | None]
"""By the digest of a question what was said to it, None for nothing."""


Passage = Callable[[str, mcp.ElicitRequest], Awaitable[mcp.ElicitResult | None]]
"""A way of its own to put a question to the human, given its kind; None is no word of them."""


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
        """The reply that makes the client ask its user. `earlier` is what was answered before."""
        nonce = secrets.token_hex(16)
        self._asked[nonce] = _Asked(
            key=key, digest=digest(request), deadline=time.monotonic() + STATE_SECONDS, earlier=earlier
        )
        while len(self._asked) > _OUTSTANDING:
            self._asked.popitem(last=False)
        return mcp.InputRequiredResult(input_requests={key: request}, request_state=nonce)

    def answered(self, state: str | None, responses: Mapping[str, object]) -> Said:
        """What was said to the question that goes with `state`, and before; empty when that was none."""
        asked = self._asked.pop(state or "", None)
        if asked is None or time.monotonic() > asked.deadline:
            return {}
        answer = responses.get(asked.key)
        return {**asked.earlier, asked.digest: answer if isinstance(answer, mcp.ElicitResult) else None}


class Asker:
    """Asks for one call."""

    def __init__(
        self,
        context: ServerRequestContext[Any, Any],
        params: mcp.InputResponseRequestParams,
        questions: Questions,
        seconds: float,
        *,
        passage: Passage | None = None,
    ) -> None:
        self._context = context
        self._params = params
        self._questions = questions
        self._seconds = seconds
        self._passage = passage
        self._said: Said | None = None
        self.pending: mcp.InputRequiredResult | None = None
        """The reply to send when a question raised `Pending`."""

    async def ask(self, question: str) -> bool:
        """Yes only when a human said so; no when nobody can be asked.

        Raises:
            Pending: the client has to answer first.
        """
        try:
            answer = await self._answer(APPROVAL, _request(question, _FORM))
        except (NobodyToAsk, TimedOut):
            return False
        return answer is not None and _is_yes(answer)

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        """See `Ask`.

        Raises:
            Pending: the client has to answer first.
        """
        form = Form(questions=questions, lists=self._speaks(_LISTS_SINCE))
        answer = await self._answer(ANSWERS, _request(form.message, form.schema))
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

    async def _answer(self, key: str, request: mcp.ElicitRequest) -> mcp.ElicitResult | None:
        """What the human said; None where the client came back without a word of them.

        Raises:
            NobodyToAsk: the client cannot ask.
            TimedOut: it did not answer in time.
            Pending: it has to answer first.
        """
        if not self._can_be_asked():
            raise NobodyToAsk
        if self._passage is not None:
            return await self._passage(key, request)
        if not self._speaks(MODERN):
            return await self._over_the_back_channel(request)
        if self._said is None:
            responses = self._params.input_responses or {}
            self._said = self._questions.answered(self._params.request_state, responses)
        if (asked := digest(request)) in self._said:
            return self._said[asked]
        self.pending = self._questions.ask(key, request, self._said)
        raise Pending

    def _speaks(self, version: str) -> bool:
        return is_version_at_least(self._context.protocol_version, version)

    def _can_be_asked(self) -> bool:
        """A client that declares elicitation without a mode means forms."""
        declared = self._context.session.client_capabilities
        elicitation = declared and declared.elicitation
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    async def _over_the_back_channel(self, request: mcp.ElicitRequest) -> mcp.ElicitResult:
        try:
            with anyio.fail_after(self._seconds):
                return await self._context.session.send_request(
                    request,
                    mcp.ElicitResult,
                    metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
                )
        except TimeoutError:
            raise unanswered(self._seconds) from None
        except (MCPError, ValueError):
            raise NobodyToAsk from None


def unanswered(seconds: float) -> TimedOut:
    """The human has not answered in that time."""
    return TimedOut(
        f"The user did not answer within {seconds:g} s. Go on without an answer, or ask again when they are "
        "back."
    )


def digest(request: mcp.ElicitRequest) -> str:
    """Tells what is asked from everything else that could be."""
    return hashlib.sha256(request.model_dump_json().encode()).hexdigest()


def _request(message: str, schema: Mapping[str, Any]) -> mcp.ElicitRequest:
    return mcp.ElicitRequest(
        params=mcp.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
    )


def _is_yes(answer: mcp.ElicitResult) -> bool:
    return answer.action == "accept" and (answer.content or {}) == {"decision": "allow"}
