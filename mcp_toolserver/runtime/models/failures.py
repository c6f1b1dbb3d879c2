"""Translates failures of the client libraries to errors whose texts hold neither address nor key."""

from collections.abc import Iterator, Mapping

import httpx2
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelTimeoutError,
)

from mcp_toolserver.errors import TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.models.transport import MAX_BYTES, OversizeResponse

_OPERATOR = "Tell the user to ask the operator of this server to"

_ADVICE: Mapping[int, str] = {
    400: f"it does not accept the request. {_OPERATOR} check provider, model and base-url of [agent].",
    401: f"check the key. {_OPERATOR} look at key-file or key-variable of [agent].",
    403: f"the key may not use this model. {_OPERATOR} check the key and model of [agent].",
    404: f"it does not have this model or address. {_OPERATOR} check model and base-url of [agent].",
    413: "the conversation is too long for it. Give the agent a smaller task.",
    429: "too many requests. Try again later, with fewer agents at once.",
}


def tool_error(error: Exception) -> ToolError:
    """The error for whatever a client library raised."""
    chain = tuple(_chain(error))
    if any(isinstance(one, OversizeResponse) for one in chain):
        return Unavailable(f"The model's provider answered with more than {MAX_BYTES >> 20} MiB.")
    if isinstance(error, ModelContextWindowExceededError):
        return Unavailable(
            "The conversation is longer than the model can read. Give the agent a smaller task."
        )
    if isinstance(error, ModelQuotaExceededError):
        return Unavailable(
            f"The model's provider refuses because the account has no credit left. {_OPERATOR} add some."
        )
    if isinstance(error, ModelTimeoutError) or any(isinstance(one, httpx2.TimeoutException) for one in chain):
        return TimedOut("The model's provider did not answer in time. Try again later.")
    if isinstance(error, ModelHTTPError):
        return _status_error(error.status_code)
    if isinstance(error, ModelConnectionError) or any(
        isinstance(one, httpx2.TransportError) for one in chain
    ):
        return Unavailable(
            f"The model's provider cannot be reached, or closed the connection. {_OPERATOR} check "
            "base-url of [agent] and the network."
        )
    if isinstance(error, ModelAPIError):
        return Unavailable("The model's provider reported an error while it answered. Try again later.")
    return Unavailable(
        f"The model's provider answered with something that is no valid response. {_OPERATOR} check provider "
        "and base-url of [agent]."
    )


def ended_early() -> ToolError:
    """The stream ended without the mark of its end."""
    return Unavailable("The model's answer ended before it was complete. Try again.")


def withheld() -> ToolError:
    """The provider's filter stopped the answer."""
    return Unavailable("The model's provider withheld the answer (content filter). Change the task.")


def _status_error(status: int) -> ToolError:
    usual = "it failed. Try again later." if status >= 500 else _ADVICE[400]
    return Unavailable(f"The model's provider answered {status}: {_ADVICE.get(status, usual)}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what caused it, at most ten."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
