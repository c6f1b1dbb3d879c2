"""Logs one line per call."""

import logging

from pydantic import JsonValue

from mcp_toolserver.pipeline.call_record import CallRecord

log = logging.getLogger(__name__)

_NAME = 128
_TEXT = (
    "%(tool)s (%(permission)s) %(verdict)s: %(outcome)s, %(duration_ms)s ms, %(bytes)s bytes, "
    "call %(call_id)s, client %(client)s%(of_user)s"
)


def log_call(call: CallRecord) -> None:
    """Log a finished call."""
    fields = call_fields(call)
    # The client chooses its name; ASCII escapes keep it from controlling a terminal.
    shown = {
        **fields,
        "tool": call.tool or "unknown tool",
        "client": ascii(fields["client"]),
        "of_user": f" of {call.user}" if call.user else "",
    }
    log.info(_TEXT, shown, extra={"facts": fields})


def call_fields(call: CallRecord) -> dict[str, JsonValue]:
    """Return the logged fields of a call. An unknown tool has no name, because the client invented it."""
    return {
        "tool": call.tool or None,
        "permission": call.permission.flag if call.permission is not None else None,
        "verdict": call.verdict,
        "outcome": call.outcome,
        "duration_ms": round(call.duration_ms, 3),
        "bytes": text_bytes(call),
        "call_id": call.id,
        "client": call.session[:_NAME],
        "user": call.user or None,
    }


def text_bytes(call: CallRecord) -> int:
    """Return the size of the result's text in bytes."""
    return len(call.text.encode(errors="surrogatepass"))
