"""Reads the body of a request within limits, and the JSON-RPC message in it."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio
from mcp_types import RequestId
from pydantic_core import from_json
from starlette.types import Receive

from mcp_toolserver.protocol.http.request_checks import RequestHead
from mcp_toolserver.protocol.refusals import (
    FULL,
    INVALID_ID,
    NOT_JSON,
    NOT_ONE_MESSAGE,
    TOO_SLOW,
    Refusal,
    too_large,
)

_NAME = 128
"""Maximum characters of a client's name."""


@dataclass(frozen=True, kw_only=True)
class Posted:
    """The fields of a JSON-RPC message that the gateway needs; empty if the body has none."""

    method: str | None = None
    id: RequestId | None = None
    client: str = ""
    """The client's name, if the message carries it."""

    @property
    def is_call(self) -> bool:
        """Whether it is a request, which expects an answer."""
        return self.method is not None and self.id is not None


class MemoryBudget:
    """The memory for the bodies of all requests together."""

    def __init__(self, size: int) -> None:
        self.left = size
        """Bytes."""


class Reservation:
    """The part of the memory budget that one request uses, until the context ends."""

    def __init__(self, room: MemoryBudget) -> None:
        self._room = room
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._room.left += self._held

    def take(self, size: int) -> bool:
        """Reserve `size` more bytes; False if the budget is exhausted."""
        if self._room.left < size:
            return False
        self._room.left -= size
        self._held += size
        return True


async def read_body(
    head: RequestHead, receive: Receive, share: Reservation, *, limit: int, seconds: float
) -> bytes | Refusal | None:
    """The whole body; None if the client disconnected before its end."""
    declared = head.values(b"content-length")
    if declared and int(declared[0]) > limit:
        return too_large(limit)
    body = bytearray()
    with anyio.move_on_after(seconds):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunk: bytes = message.get("body", b"")
            if not share.take(len(chunk)):
                return FULL
            body += chunk
            if len(body) > limit:
                return too_large(limit)
            if not message.get("more_body", False):
                return bytes(body)
    return TOO_SLOW


def message_in(head: RequestHead, body: bytes) -> Posted | Refusal:
    """The message in a body, parsed as the SDK does: the last of repeated keys counts."""
    if head.method != "POST":
        return Posted()
    try:
        message: object = from_json(body, allow_inf_nan=False)
    except ValueError:
        return NOT_JSON
    match message:
        case {"method": str() as method, "id": str() | int() as request_id} if not isinstance(
            request_id, bool
        ):
            return Posted(method=method, id=request_id, client=_client(message))
        case {"method": str(), "id": object()}:
            # The SDK treats such a request as a notification and never answers it.
            return INVALID_ID
        case {"method": str() as method}:
            return Posted(method=method)
        case dict():
            return Posted()
        case _:
            return NOT_ONE_MESSAGE


def _client(message: object) -> str:
    match message:
        case {"params": {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": str() as name}}}}:
            return name[:_NAME]
        case _:
            return ""
