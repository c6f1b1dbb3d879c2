"""Answers the client of a server that cannot start, so that the client's user sees why.

It uses the standard library only, because most of these starts end before the SDK is imported.
"""

import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import suppress

SECONDS = 5.0
"""How long a client may take to send its first request."""

LONGEST = 1 << 20
"""Bytes of a line."""

_PIPE_BUF = 512
"""Bytes that can always be written without waiting if the descriptor is writable (POSIX)."""

_PARSE_ERROR, _INVALID_REQUEST, _INTERNAL_ERROR = -32700, -32600, -32603


def answer(reason: str, *, source: int = 0, target: int = 1, seconds: float = SECONDS) -> None:
    """Answer requests with an error that carries `reason`.

    Returns when a request other than `server/discover` is answered, the input ends, the client stops reading
    or `seconds` have passed. A client that starts with `server/discover` sends `initialize` after an error,
    and shows the error of that. `source` and `target` are the descriptors of messages and answers.
    """
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        for line in _lines(source, deadline):
            found = _reply(line, reason)
            if found is not None:
                reply, is_last = found
                _write(target, json.dumps(reply).encode() + b"\n", deadline)
                if is_last:
                    return


def _lines(source: int, deadline: float) -> Iterator[bytes]:
    """Yield the lines that are not blank, also one without an end."""
    rest = b""
    while True:
        _wait([source], [], deadline)
        read = os.read(source, 1 << 16)
        *lines, rest = (rest + read).split(b"\n")
        yield from filter(bytes.strip, lines)
        if not read or len(rest) > LONGEST:
            if rest.strip():
                yield rest
            return


def _reply(line: bytes, reason: str) -> tuple[dict[str, object], bool] | None:
    """The answer to a line, None if it needs none; and whether the client waits for no other."""
    try:
        message: dict[str, object] | list[object] | str | float | None = json.loads(line)
    except (ValueError, RecursionError):
        return _error(_PARSE_ERROR, "Not a JSON-RPC message"), False
    fields = message if isinstance(message, dict) else {}
    method, request_id = fields.get("method"), fields.get("id")
    if isinstance(method, str) and isinstance(request_id, (int, str)) and not isinstance(request_id, bool):
        return _error(_INTERNAL_ERROR, reason, request_id), method != "server/discover"
    is_notification = isinstance(method, str) and "id" not in fields
    if is_notification or "result" in fields or "error" in fields:
        return None
    return _error(_INVALID_REQUEST, "Not a JSON-RPC request; send one message a line"), False


def _error(code: int, text: str, request_id: int | str | None = None) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def _write(target: int, line: bytes, deadline: float) -> None:
    for start in range(0, len(line), _PIPE_BUF):
        _wait([], [target], deadline)
        os.write(target, line[start : start + _PIPE_BUF])


def _wait(readable: list[int], writable: list[int], deadline: float) -> None:
    """Wait until the descriptor can be used. Raises: TimeoutError: not before the deadline."""
    ready = select.select(readable, writable, [], max(0.0, deadline - time.monotonic()))
    if not any(ready):
        raise TimeoutError
