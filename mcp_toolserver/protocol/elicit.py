"""Asking the human behind the client, in both eras of the protocol.

With a handshake the server sends the question and waits. Since 2026-07-28 the call itself comes back as
"input required", and the client sends it again with the answer; the state that travels along is sealed, bound
to the exact call, and good for one use.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import is_version_at_least

from mcp_toolserver.dispatch import Pending
from mcp_toolserver.protocol.translate import MODERN

APPROVAL = "approval"
"""Key of the one question a call can ask."""

STATE_SECONDS = 600.0
"""How long a client may take to answer in the stateless era."""

_OUTSTANDING = 1024
"""Questions that wait for an answer; beyond, the oldest is forgotten and its answer counts as no."""

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "title": "Decision", "enum": ["allow", "deny"]}},
    "required": ["decision"],
}


class Questions:
    """Questions sent to stateless clients: each can be answered once, and only for the same question."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def ask(self, question: str) -> mcp.InputRequiredResult:
        """The reply that makes the client ask its user."""
        nonce = secrets.token_hex(16)
        self._asked[nonce] = (_digest(question), time.monotonic() + STATE_SECONDS)
        while len(self._asked) > _OUTSTANDING:
            self._asked.popitem(last=False)
        return mcp.InputRequiredResult(input_requests={APPROVAL: _request(question)}, request_state=nonce)

    def answered(self, question: str, state: str | None, answer: object) -> bool | None:
        """What the human said to `question`; None when it was not asked, or of another call."""
        digest, deadline = self._asked.pop(state or "", ("", 0.0))
        if digest != _digest(question) or time.monotonic() > deadline:
            return None
        return isinstance(answer, mcp.ElicitResult) and _is_yes(answer)


class Asker:
    """Asks for one call."""

    def __init__(
        self,
        context: ServerRequestContext[Any, Any],
        params: mcp.CallToolRequestParams,
        questions: Questions,
        seconds: float,
    ) -> None:
        self._context = context
        self._params = params
        self._questions = questions
        self._seconds = seconds
        self.pending: mcp.InputRequiredResult | None = None
        """The reply to send when `ask` raised `Pending`."""

    async def ask(self, question: str) -> bool:
        """Yes only when a human said so; no when nobody can be asked.

        Raises:
            Pending: the client has to answer first.
        """
        if not self._can_be_asked():
            return False
        if not is_version_at_least(self._context.protocol_version, MODERN):
            return await self._over_the_back_channel(question)
        answers = self._params.input_responses or {}
        said = self._questions.answered(question, self._params.request_state, answers.get(APPROVAL))
        if said is not None:
            return said
        self.pending = self._questions.ask(question)
        raise Pending

    def _can_be_asked(self) -> bool:
        """A client that declares elicitation without a mode means forms."""
        declared = self._context.session.client_capabilities
        elicitation = declared and declared.elicitation
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    async def _over_the_back_channel(self, question: str) -> bool:
        try:
            with anyio.fail_after(self._seconds):
                answer = await self._context.session.send_request(
                    _request(question),
                    mcp.ElicitResult,
                    metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
                )
        except (TimeoutError, MCPError, ValueError):
            return False
        return _is_yes(answer)


def _request(question: str) -> mcp.ElicitRequest:
    return mcp.ElicitRequest(params=mcp.ElicitRequestFormParams(message=question, requested_schema=_FORM))


def _is_yes(answer: mcp.ElicitResult) -> bool:
    return answer.action == "accept" and (answer.content or {}) == {"decision": "allow"}


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()
