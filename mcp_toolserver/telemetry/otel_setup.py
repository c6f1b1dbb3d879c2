"""Setting OpenTelemetry's SDK up, as its own environment variables say, in a process that is confined.

Its usual starter does so before the program begins, with threads that nothing confines; a server that forks
and locks itself cannot have that. What exports is loaded by its entry point, as that starter does it.

The variables may be meant for whoever started this server, so what is missing is said in the log and stops
nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

log = logging.getLogger(__name__)

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"

_FLUSH_SECONDS = 0.3
"""How long the end of the server may wait for what was not sent yet."""


def start(environ: Mapping[str, str]) -> Callable[[], None]:
    """Export spans and metrics from now on, where that is asked for. What sends the rest at the end."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporters = {signal: [] if off else _names(environ, signal) for signal in ("TRACES", "METRICS")}
    if not any(exporters.values()):
        return _nothing
    if find_spec("opentelemetry.sdk") is None:
        log.info("OTEL_* asks for telemetry, which needs mcp-toolserver[otel]")
        return _nothing
    return _started(environ, exporters)


def _nothing() -> None:
    """Nothing is left to send."""


def _started(environ: Mapping[str, str], exporters: Mapping[str, Sequence[str]]) -> Callable[[], None]:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What the variables say of the service goes before this.
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {SERVICE_NAME: "mcp-toolserver"})
    spans = TracerProvider(resource=resource)
    for exporter in _loaded("TRACES", exporters):
        spans.add_span_processor(BatchSpanProcessor(exporter))
    readers = [PeriodicExportingMetricReader(exporter) for exporter in _loaded("METRICS", exporters)]
    meters = MeterProvider(readers, resource=resource)
    trace.set_tracer_provider(spans)
    metrics.set_meter_provider(meters)
    return lambda: _flush(spans.force_flush, meters.force_flush)


def _flush(*sending: Callable[[], object]) -> None:
    """Send what was not sent yet, as far as that is quick: nobody waits for a collector that is gone."""
    threads = [threading.Thread(target=send, daemon=True) for send in sending]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _FLUSH_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _names(environ: Mapping[str, str], signal: str) -> list[str]:
    """The exporters that are asked for; where only an address is given, the one for OTLP."""
    given = environ.get(f"OTEL_{signal}_EXPORTER")
    addressed = _ENDPOINT in environ or f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" in environ
    names = [name.strip() for name in (given or ("otlp" if addressed else "")).split(",")]
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get(_PROTOCOL, "http/protobuf")
    known = {"otlp": "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"}
    return [known.get(name, name) for name in names if name not in ("", "none")]


def _loaded(signal: str, exporters: Mapping[str, Sequence[str]]) -> list[Any]:
    """The exporters of a signal that are installed."""
    group = f"opentelemetry_{signal.lower()}_exporter"
    found: list[Any] = []
    for name in exporters[signal]:
        points = entry_points(group=group, name=name)
        if not points:
            log.warning("OTEL_%s_EXPORTER: no exporter %r is installed; nothing goes there", signal, name)
        found += [point.load()() for point in points]
    return found
