"""The response to a request, as the gate lets it out."""

from collections.abc import Iterable

from mcp_types import RequestId
from starlette.types import Message, Send

from mcp_toolserver.protocol.refusal import ENDING, SHIELDS, Refusal


class Reply:
    """The response to one request: adds the headers that all have, and knows how far it has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.complete = False
        self._endless = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message on."""
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
        """Say why the request is not served."""
        kind = (b"content-type", b"application/json")
        await self.answer(refusal.status, refusal.body(request_id), kind, *refusal.all_headers)

    async def finish(self) -> None:
        """Bring a response that was cut short to an end that the client can tell from a lost connection."""
        if not self.started:
            await self.refuse(ENDING)
        elif self._endless and not self.complete:
            await self.send({"type": "http.response.body", "body": b""})


def _shielded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response with `SHIELDS` in place of its own of the same names."""
    names = {name for name, _ in SHIELDS}
    kept = [(name, value) for name, value in headers if name.lower() not in names]
    return [*kept, *SHIELDS]
