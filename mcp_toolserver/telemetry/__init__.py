"""Reports calls to operators while the server runs: log lines, spans and metrics.

None of it contains values of arguments.
"""

import sys

from mcp_toolserver.pipeline.call_record import CallObserver


def is_tracing() -> bool:
    """Whether OpenTelemetry's SDK is loaded, by this server or by its host process."""
    return "opentelemetry.sdk" in sys.modules


def observers(log_level: str) -> tuple[CallObserver, ...]:
    """Return the observers of finished calls; imports only what is switched on."""
    found: list[CallObserver] = []
    if log_level in ("debug", "info"):
        from mcp_toolserver.telemetry.call_log import log_call

        found.append(log_call)
    if is_tracing():
        from mcp_toolserver.telemetry.otel import Telemetry

        found.append(Telemetry().record_call)
    return tuple(found)
