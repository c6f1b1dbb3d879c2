"""Builds the audit entry of a call."""

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import to_json

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.text.argument_cleanup import refusal
from mcp_toolserver.text.redact_secrets import redacted
from mcp_toolserver.text.timestamps import utc

Fields = dict[str, JsonValue]

_NAME = 128
_RULE = 1_000

_FLAGS: Mapping[Permission | None, str | None] = {None: None, **{one: one.flag for one in Permission}}


@dataclass(frozen=True, kw_only=True)
class AuditContext:
    """What all entries of one server share."""

    mode: str
    layers: Mapping[Capability, tuple[str, ...]]
    """The enforcement layers of each capability."""
    values: bool = False
    """Whether entries contain the arguments, with secrets redacted."""
    server: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies a server among those that share the log."""


def entry_fields(call: CallRecord, context: AuditContext) -> Fields:
    """Return the entry of a call, without number and hash."""
    text = call.text.encode(errors="surrogatepass")
    entry: Fields = {
        "time": utc(time.time_ns() // 10**6),
        "call": call.id,
        "parent": call.parent_id or None,
        "server": context.server,
        "user": call.user or None,
        "session": call.session[:_NAME],
        "tool": call.tool,
        "name": call.name[:_NAME],
        "mode": call.mode or context.mode,
        "permission": _FLAGS[call.permission],
        "verdict": call.verdict,
        "rule": call.rule[:_RULE],
        "layers": _layers(call, context),
        "outcome": call.outcome,
        "ms": round(call.duration_ms, 3),
        "bytes": len(text),
        "arguments_sha256": _arguments_digest(call.arguments),
        "result_sha256": hashlib.sha256(text).hexdigest(),
    }
    if context.values:
        sent = dict(call.arguments)
        entry["arguments"] = redacted(sent) if refusal(sent) is None else None
    return entry


def encode_entry(entry: Fields) -> bytes:
    """Encode an entry as JSON in ASCII, so that no name in it can control a terminal."""
    try:
        data = to_json(entry)
    except ValueError:
        # A lone surrogate, which UTF-8 cannot encode.
        data = b"\xff"
    return data if data.isascii() else json.dumps(entry, separators=(",", ":")).encode()


def _layers(call: CallRecord, context: AuditContext) -> list[JsonValue]:
    """Return the enforcement layers of a call, each once."""
    needs = sorted(call.needs, key=lambda need: need.label)
    return list(dict.fromkeys(layer for need in needs for layer in context.layers.get(need, ())))


def _arguments_digest(arguments: Mapping[str, JsonValue]) -> str | None:
    """Return the SHA-256 of the arguments as canonical JSON: sorted names, no spaces, UTF-8.

    None if they cannot be encoded; no tool receives such arguments.
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
