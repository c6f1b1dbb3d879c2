"""What a line of the audit log says of a call."""

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import to_json

from mcp_toolserver.capabilities.prices import Capability, Permission
from mcp_toolserver.record import Call
from mcp_toolserver.text.arguments import refusal
from mcp_toolserver.text.redact import redacted

Fields = dict[str, JsonValue]

_NAME = 128
_RULE = 1_000

_FLAGS: Mapping[Permission | None, str | None] = {None: None, **{one: one.flag for one in Permission}}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is the same in every line of a server."""

    mode: str
    layers: Mapping[Capability, tuple[str, ...]]
    """What enforces the mode for each capability."""
    values: bool = False
    """Write the arguments too, without what looks like a secret."""
    server: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tells servers apart that share a log."""


def fields(call: Call, facts: Facts) -> Fields:
    """The line of a call, as far as the call knows it."""
    text = call.text.encode(errors="surrogatepass")
    told: Fields = {
        "time": _now(),
        "call": call.id,
        "server": facts.server,
        "session": call.session[:_NAME],
        "tool": call.tool,
        "name": call.name[:_NAME],
        "mode": call.mode or facts.mode,
        "permission": _FLAGS[call.permission],
        "verdict": call.verdict,
        "rule": call.rule[:_RULE],
        "layers": _layers(call, facts),
        "outcome": call.outcome,
        "ms": round(call.duration_ms, 3),
        "bytes": len(text),
        "arguments_sha256": _arguments_digest(call.arguments),
        "result_sha256": hashlib.sha256(text).hexdigest(),
    }
    if facts.values:
        sent = dict(call.arguments)
        told["arguments"] = redacted(sent) if refusal(sent) is None else None
    return told


def line(told: Fields) -> bytes:
    """As JSON in ASCII, so that no name in it can drive a terminal."""
    try:
        data = to_json(told)
    except ValueError:
        # Half of a surrogate pair, which JSON can only spell.
        data = b"\xff"
    return data if data.isascii() else json.dumps(told, separators=(",", ":")).encode()


def _now() -> str:
    seconds, fraction = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction // 10**6:03}Z"


def _layers(call: Call, facts: Facts) -> list[JsonValue]:
    """What enforces the mode for a call, each layer once."""
    needs = sorted(call.needs, key=lambda need: need.value)
    return list(dict.fromkeys(layer for need in needs for layer in facts.layers.get(need, ())))


def _arguments_digest(arguments: Mapping[str, JsonValue]) -> str | None:
    """SHA-256 of the arguments in canonical JSON: names in order, no spaces, UTF-8.

    None for what JSON in UTF-8 cannot say, or not within reason; no tool sees that.
    """
    try:
        text = to_json(_in_order(dict(arguments)), inf_nan_mode="constants")
    except (ValueError, RecursionError):
        return None
    return hashlib.sha256(text).hexdigest()


def _in_order(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    return value
