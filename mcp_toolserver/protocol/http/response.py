"""The response of the gateway to one request."""

from collections.abc import Iterable

from mcp_types import RequestId
from starlette.types import Message, Send

from mcp_toolserver.protocol.refusals import ENDING, SHIELDS, Refusal


class Reply:
    """The response to one request: adds the headers of every response and tracks its progress."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.complete = False
        self._endless = False

    async def send(self, message: Message) -> None:
        """Forward an ASGI message."""
        if message["type"] == "http.response.start":
            self.started = True
            message = {**message, "headers": _shielded(message.get("headers", ()))}
            self._endless = all(name != b"content-length" for name, _ in message["headers"])
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)

    async def answer(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Send a whole response."""
        length = (b"content-length", str(len(body)).encode())
        await self.send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal, request_id: RequestId | None = None) -> None:
        """Send a refusal."""
        kind = (b"content-type", b"application/json")
        await self.answer(refusal.status, refusal.body(request_id), kind, *refusal.all_headers)

    async def finish(self, refusal: Refusal = ENDING) -> None:
        """Complete an interrupted response, so that the client does not see a lost connection."""
        if not self.started:
            await self.refuse(refusal)
        elif self._endless and not self.complete:
            await self.send({"type": "http.response.body", "body": b""})


def _shielded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response, with `SHIELDS` replacing its own of the same names."""
    names = {name for name, _ in SHIELDS}
    kept = [(name, value) for name, value in headers if name.lower() not in names]
    return [*kept, *SHIELDS]
