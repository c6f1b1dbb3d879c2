"""JSON-RPC messages, one a line, read so that no other parser can take them for something else."""

import json
from dataclasses import dataclass

from pydantic import JsonValue

from mcp_toolserver.text.lines.escape_invisible import visible

INVALID, PARSE, INTERNAL, CLOSED = -32600, -32700, -32603, -32000

Object = dict[str, JsonValue]
Id = int | str

_FIELDS = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})


class Malformed(Exception):
    """A line is no message; the text says why and follows "it"."""


@dataclass(frozen=True)
class Message:
    fields: Object
    line: bytes
    """As it came, with its end; a part of a batch is encoded anew."""

    @property
    def method(self) -> str | None:
        """None for a response."""
        method = self.fields.get("method")
        return method if isinstance(method, str) else None

    @property
    def id(self) -> Id | None:
        """None for a notification, and for what is no id."""
        return as_id(self.fields.get("id"))

    @property
    def params(self) -> Object:
        params = self.fields.get("params")
        return params if isinstance(params, dict) else {}


def as_id(value: JsonValue) -> Id | None:
    """`value` if it is an id; 1.0 and true equal 1 in Python, and are none."""
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def parse(line: bytes) -> list[Message]:
    """The messages in a line: several are a batch, which only revision 2025-03-26 knows.

    Rejects what parsers read differently: a name that an object has twice, also in other case where the
    protocol defines it, and a response with a method.

    Raises:
        Malformed.
    """
    try:
        found: JsonValue = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Malformed("is not JSON") from None
    if not isinstance(found, list):
        return [_checked(found, line)]
    return [_checked(one, encode(one)) for one in found]


def encode(message: JsonValue) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def error(of: Id | None, code: int, text: str) -> bytes:
    """An error response; its text hides nothing."""
    return encode({"jsonrpc": "2.0", "id": of, "error": {"code": code, "message": visible(text)}})


def _unique(pairs: list[tuple[str, JsonValue]]) -> Object:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Malformed("has a name twice in an object")
    return made


def _checked(found: JsonValue, line: bytes) -> Message:
    if not isinstance(found, dict):
        raise Malformed("is no object")
    if any(name not in _FIELDS and name.lower() in _FIELDS for name in found):
        raise Malformed("has a field in another case")
    is_answer = "result" in found or "error" in found
    if ("method" in found) == is_answer or (is_answer and "id" not in found):
        raise Malformed("is neither a request nor a response")
    return Message(found, line if line.endswith(b"\n") else line + b"\n")
