"""An answer of the web as text."""

from mcp_toolserver.capabilities.web import WebAnswer
from mcp_toolserver.text.encoding import detect
from mcp_toolserver.text.readable import decoded
from mcp_toolserver.text.untrusted import framed

_HEADERS = 100
_HEADER_LIMIT = 500


def answered(method: str, answer: WebAnswer, *, headers: bool) -> str:
    """What was asked, how it went, and in a frame what came back."""
    outcome = "success" if 200 <= answer.status < 300 else "no success"
    said = f"{method} {answer.url}: {answer.status} {answer.reason} ({outcome})"
    told = [f"{name}: {value[:_HEADER_LIMIT]}" for name, value in list(answer.headers.items())[:_HEADERS]]
    parts = [*(["\n".join(told)] if headers else []), *filter(None, [_body(answer)])]
    shown = framed("\n\n".join(parts), answer.mark) if parts else "(no body)"
    cut = "" if answer.complete else f"\n[only the first {len(answer.body)} bytes of the body were read]"
    return f"{said}\n{shown}{cut}"


def _body(answer: WebAnswer) -> str:
    if not answer.body:
        return ""
    if detect(answer.body, complete=answer.complete) is None:
        return f"({len(answer.body)} bytes that are not text)"
    text = decoded(answer.body, answer.headers.get("content-type", ""))
    # A body is cut between bytes, which may be in the middle of a character.
    return text if answer.complete else text.rstrip("\ufffd")
