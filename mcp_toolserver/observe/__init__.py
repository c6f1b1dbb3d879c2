"""What operators see of calls while the server runs: lines on standard error, spans and metrics.

No value of an argument is in any of it.
"""

import sys
from collections.abc import Callable

from mcp_toolserver.record import Call

Witness = Callable[[Call], None]


def traced() -> bool:
    """Whether OpenTelemetry's SDK is in use here, set up by this server or by whoever started it."""
    return "opentelemetry.sdk" in sys.modules


def witnesses(log_level: str) -> tuple[Witness, ...]:
    """Who is told of each call that has ended. A server that tells nobody is spared the imports."""
    found: list[Witness] = []
    if log_level in ("debug", "info"):
        from mcp_toolserver.observe.calls import log_call

        found.append(log_call)
    if traced():
        from mcp_toolserver.observe.telemetry import Telemetry

        found.append(Telemetry().saw)
    return tuple(found)
