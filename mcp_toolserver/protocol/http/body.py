"""The body of a request: read whole within bounds, and the JSON-RPC message in it."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio
from mcp_types import RequestId
from pydantic_core import from_json
from starlette.types import Receive

from mcp_toolserver.protocol.checks import Head
from mcp_toolserver.protocol.refusal import FULL, NOT_JSON, NOT_ONE_MESSAGE, TOO_SLOW, Refusal, too_large

_NAME = 128
"""Characters of a client's name."""


@dataclass(frozen=True, kw_only=True)
class Posted:
    """What the gate needs to know of the JSON-RPC message in a body; empty when there is none."""

    method: str | None = None
    id: RequestId | None = None
    client: str = ""
    """What the client calls itself, where the message says so."""

    @property
    def is_call(self) -> bool:
        """Whether it asks for an answer."""
        return self.method is not None and self.id is not None


class Room:
    """Room for the bodies of all requests together."""

    def __init__(self, size: int) -> None:
        self.left = size
        """Bytes."""


class Share:
    """What one request takes of the room, until the context is left."""

    def __init__(self, room: Room) -> None:
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
        """So many bytes more, if there is room."""
        if self._room.left < size:
            return False
        self._room.left -= size
        self._held += size
        return True


async def read_body(
    head: Head, receive: Receive, share: Share, *, limit: int, seconds: float
) -> bytes | Refusal | None:
    """The whole body; None when the client left before its end."""
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


def message_in(head: Head, body: bytes) -> Posted | Refusal:
    """The message in a body, read as the SDK reads it: of a repeated key the last counts."""
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
