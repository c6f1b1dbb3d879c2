"""A line for each call, in the server's log."""

import logging

from pydantic import JsonValue

from mcp_toolserver.record import Call

log = logging.getLogger(__name__)

_NAME = 128
_TEXT = (
    "%(tool)s (%(permission)s) %(verdict)s: %(outcome)s, %(duration_ms)s ms, %(bytes)s bytes, "
    "call %(call_id)s, client %(client)s"
)


def log_call(call: Call) -> None:
    """Write the line of a call that has ended."""
    told = facts(call)
    # The client chose its name; spelt in ASCII it cannot drive a terminal.
    shown = {**told, "tool": call.tool or "unknown tool", "client": ascii(told["client"])}
    log.info(_TEXT, shown, extra={"facts": told})


def facts(call: Call) -> dict[str, JsonValue]:
    """What is told of a call. A tool that does not exist has no name: the caller made that up."""
    return {
        "tool": call.tool or None,
        "permission": call.permission.flag if call.permission is not None else None,
        "verdict": call.verdict,
        "outcome": call.outcome,
        "duration_ms": round(call.duration_ms, 3),
        "bytes": size(call),
        "call_id": call.id,
        "client": call.session[:_NAME],
    }


def size(call: Call) -> int:
    """Bytes of the answer's text."""
    return len(call.text.encode(errors="surrogatepass"))
