"""How long clients wait for the answer to a call before they give up."""

from collections.abc import Mapping

import mcp_types as mcp

_MARGIN = 20.0
"""Seconds between our answer and the client's timeout."""

_TIMEOUTS: Mapping[str, float] = {
    "claude-code": 300.0,
    "gemini-cli-mcp-client": 600.0,
    "goose": 300.0,
}
"""Seconds, by the start of the name that a client gives itself. Only clients whose own default is known:

- Claude Code 2.1.222 aborts after 300 s without an answer or progress (vfarcic/dot-ai pull request 708).
- Gemini CLI documents `timeout` of a server in settings.json with a default of 600,000 ms.
- goose has DEFAULT_EXTENSION_TIMEOUT = 300 s in block/goose, crates/goose/src/config/extensions.rs.

A user may have set a shorter time in the client; the setting `foreground-seconds` of this server then has to
follow."""

_SINCE: Mapping[str, tuple[int, ...]] = {"claude-code": (2, 1, 154)}
"""The first version that is known to wait so long: older ones, and the desktop application, cancel a call
after 60 s (anthropics/claude-code issue 63379)."""


def seconds_to_answer(client: mcp.Implementation | None) -> float | None:
    """Seconds within which this client has to be answered; None for a client whose timeout is unknown."""
    if client is None:
        return None
    name = next((name for name in _TIMEOUTS if client.name.startswith(name)), "")
    if not name or _version(client.version) < _SINCE.get(name, ()):
        return None
    return _TIMEOUTS[name] - _MARGIN


def _version(text: str) -> tuple[int, ...]:
    """`1.2.3-rc1` → (1, 2, 3); empty for what is no version."""
    numbers = text.partition("-")[0].split(".")
    return tuple(map(int, numbers)) if all(map(_is_number, numbers)) else ()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 9
