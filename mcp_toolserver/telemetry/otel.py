"""Adds the outcome of calls to OpenTelemetry spans and metrics.

The MCP SDK opens the spans. This module is imported only if OpenTelemetry's SDK is in use.
"""

from opentelemetry import metrics, trace

from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.telemetry.call_log import call_fields, text_bytes

_DIMENSIONS = ("tool", "permission", "verdict", "outcome")
"""Dimensions of the metrics. Each has few values; names invented by clients are excluded."""


class Telemetry:
    """Sets attributes of the current span and updates the metrics."""

    def __init__(self) -> None:
        meter = metrics.get_meter("mcp_toolserver")
        self._calls = meter.create_counter(
            "mcp_toolserver.calls", unit="{call}", description="Calls of tools"
        )
        self._duration = meter.create_histogram(
            "mcp_toolserver.call.duration", unit="s", description="How long calls took"
        )
        self._size = meter.create_histogram(
            "mcp_toolserver.call.size", unit="By", description="Text of the answers"
        )

    def record_call(self, call: CallRecord) -> None:
        """Record a finished call."""
        fields = {
            name: value for name, value in call_fields(call).items() if isinstance(value, str | int | float)
        }
        span = trace.get_current_span()
        span.set_attributes({f"mcp_toolserver.{name}": value for name, value in fields.items()})
        dimensions = {name: fields[name] for name in _DIMENSIONS if name in fields}
        self._calls.add(1, dimensions)
        self._duration.record(call.duration_ms / 1000, dimensions)
        self._size.record(text_bytes(call), dimensions)
