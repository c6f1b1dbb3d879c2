"""The model of a client with a handshake: the server asks over the open connection, while the call runs."""

from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from mcp_toolserver.capabilities.model import ModelRequest, ModelTurn
from mcp_toolserver.errors import TimedOut, Unavailable
from mcp_toolserver.protocol.sampling.messages import create_message, turn_of

TURN_SECONDS = 600.0
"""How long a client may take for a turn, in which its user may have to approve."""

NO_REQUEST = (
    "The client's model answers only while the client waits for the call that uses it. Start the agent again "
    "without run_in_background, or ask the operator to configure a model in [agent]."
)


class BackChannelModel:
    """Implements `Model` for the time of one request."""

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._context = context
        self._is_open = True

    def close(self) -> None:
        """The request is answered; from now on no turn is possible."""
        self._is_open = False

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """See `Model.turn`."""
        if not self._is_open:
            raise Unavailable(NO_REQUEST)
        asked = create_message(request)
        result_type = mcp.CreateMessageResultWithTools if asked.params.tools else mcp.CreateMessageResult
        try:
            with anyio.fail_after(TURN_SECONDS):
                result = await self._context.session.send_request(
                    asked,
                    result_type,
                    metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
                )
        except TimeoutError:
            raise not_answered() from None
        except (MCPError, ValueError):
            raise declined() from None
        return turn_of(result, request)


def declined() -> Unavailable:
    """The client did not answer, or not with a turn."""
    return Unavailable(
        "The client did not let its model answer; its user may have declined. Do the work without an "
        "agent, or ask the user."
    )


def not_answered() -> TimedOut:
    """The client did not answer in time."""
    return TimedOut(f"The client's model did not answer within {TURN_SECONDS:g} s.")
