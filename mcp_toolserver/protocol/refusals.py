"""Refusals of requests: a text that says what to do instead, and over HTTP a status."""

import json
from dataclasses import dataclass

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, ErrorData, RequestId

Headers = tuple[tuple[bytes, bytes], ...]

CLOSE: Headers = ((b"connection", b"close"),)

SHIELDS: Headers = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of every response: no caching, no content sniffing."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request is refused. The text never repeats what the client sent."""

    status: int
    text: str
    code: int = INVALID_REQUEST
    """The JSON-RPC error code."""
    headers: Headers = ()
    retry_seconds: int = 0
    """The Retry-After header; 0 sends none."""

    @property
    def all_headers(self) -> Headers:
        retry = (b"retry-after", b"%d" % self.retry_seconds)
        return (*self.headers, retry) if self.retry_seconds else self.headers

    @property
    def error(self) -> ErrorData:
        """The JSON-RPC error. It carries the retry time for transports without headers."""
        data = {"retryAfterSeconds": self.retry_seconds} if self.retry_seconds else None
        return ErrorData(code=self.code, message=self.text, data=data)

    def body(self, request_id: RequestId | None = None) -> bytes:
        error = self.error.model_dump(exclude_none=True)
        return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


NOT_JSON = Refusal(status=400, code=PARSE_ERROR, text="The body is not JSON. Send one JSON-RPC message.")
NOT_ONE_MESSAGE = Refusal(
    status=400,
    text="The body must be one JSON object, a JSON-RPC message. Send the parts of a batch one by one.",
)
INVALID_ID = Refusal(
    status=400,
    text="The id of a request must be a string or a whole number. Leave it out only to send a notification.",
)
TOO_SLOW = Refusal(
    status=408, headers=CLOSE, text="The body did not arrive in time. Send the request again, whole."
)
FULL = Refusal(
    status=503,
    code=INTERNAL_ERROR,
    retry_seconds=1,
    text="Too many requests are in progress. Try again in a second.",
)
ENDING = Refusal(
    status=503, code=INTERNAL_ERROR, headers=CLOSE, text="The server is shutting down. Connect again later."
)


NO_TOKENS = Refusal(
    status=503,
    code=INTERNAL_ERROR,
    retry_seconds=10,
    text="The server accepts no token until its operator has corrected the file of tokens.",
)
INVALID_CHALLENGE = (b"www-authenticate", b'Bearer realm="mcp-toolserver", error="invalid_token"')
REVOKED = Refusal(
    status=401,
    headers=(*CLOSE, INVALID_CHALLENGE),
    text="The token was revoked, changed or expired while this request was in progress. Ask the operator of "
    "the server.",
)

TOO_MUCH = 429
"""The JSON-RPC code for a client over its limit, from the range that the protocol leaves free."""


def too_many(limit: int) -> Refusal:
    text = f"This client has {limit} requests in progress, as many as it may. Wait for an answer first."
    return Refusal(status=429, code=TOO_MUCH, retry_seconds=1, text=text)


def too_fast(limit: int, seconds: int) -> Refusal:
    text = f"This client may make {limit} calls a minute and has made them. Try again in {seconds} s."
    return Refusal(status=429, code=TOO_MUCH, retry_seconds=seconds, text=text)


def too_large(limit: int) -> Refusal:
    return Refusal(status=413, text=f"The body is larger than {limit} bytes. Send less at once.")
