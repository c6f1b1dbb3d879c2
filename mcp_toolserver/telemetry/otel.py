"""Spans and metrics through OpenTelemetry: the span of each request says what became of the call.

The MCP SDK opens the spans. Nothing of this is imported unless OpenTelemetry's SDK is in use.
"""

from opentelemetry import metrics, trace

from mcp_toolserver.observe.calls import facts, size
from mcp_toolserver.record import Call

_DIMENSIONS = ("tool", "permission", "verdict", "outcome")
"""What metrics are told apart by. Each has few values; a name that a client made up is none of them."""


class Telemetry:
    """Adds to the current span, and counts."""

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

    def saw(self, call: Call) -> None:
        """A call has ended."""
        told = {name: value for name, value in facts(call).items() if isinstance(value, str | int | float)}
        span = trace.get_current_span()
        span.set_attributes({f"mcp_toolserver.{name}": value for name, value in told.items()})
        dimensions = {name: told[name] for name in _DIMENSIONS if name in told}
        self._calls.add(1, dimensions)
        self._duration.record(call.duration_ms / 1000, dimensions)
        self._size.record(size(call), dimensions)
