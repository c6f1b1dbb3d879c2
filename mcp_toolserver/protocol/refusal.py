"""A request that is not served: the status, and a text that says what to do instead."""

import json
from dataclasses import dataclass

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, RequestId

Headers = tuple[tuple[bytes, bytes], ...]

CLOSE: Headers = ((b"connection", b"close"),)

SHIELDS: Headers = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""What every response carries: nothing is cached, nothing is taken for another type."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request is not served. The text never repeats what the client sent."""

    status: int
    text: str
    code: int = INVALID_REQUEST
    """Of the JSON-RPC error that carries the text."""
    headers: Headers = ()

    def body(self, request_id: RequestId | None = None) -> bytes:
        """The text as a JSON-RPC error, for people and clients alike."""
        error = {"code": self.code, "message": self.text}
        return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


NOT_JSON = Refusal(status=400, code=PARSE_ERROR, text="The body is not JSON. Send one JSON-RPC message.")
NOT_ONE_MESSAGE = Refusal(
    status=400,
    text="The body must be one JSON object, a JSON-RPC message. Send the parts of a batch one by one.",
)
TOO_SLOW = Refusal(
    status=408, headers=CLOSE, text="The body did not arrive in time. Send the request again, whole."
)
FULL = Refusal(
    status=503,
    code=INTERNAL_ERROR,
    headers=((b"retry-after", b"1"),),
    text="Too many requests are in progress. Try again in a second.",
)
ENDING = Refusal(
    status=503, code=INTERNAL_ERROR, headers=CLOSE, text="The server is shutting down. Connect again later."
)


def too_large(limit: int) -> Refusal:
    """More body than this server reads."""
    return Refusal(status=413, text=f"The body is larger than {limit} bytes. Send less at once.")
