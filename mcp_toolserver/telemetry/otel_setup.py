"""Configures OpenTelemetry's SDK from its environment variables, in a sandboxed process.

Its own launcher does this before the program starts, with threads that the sandbox would not cover. Exporters
are loaded by their entry points, as the launcher does.

The variables may be meant for the host process, so missing packages are only logged.
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
"""How long shutdown may wait for pending data."""


def start(environ: Mapping[str, str]) -> Callable[[], None]:
    """Start exporting if the variables ask for it; return a function that flushes at the end."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporters = {signal: [] if off else _exporter_names(environ, signal) for signal in ("TRACES", "METRICS")}
    if not any(exporters.values()):
        return lambda: None
    if find_spec("opentelemetry.sdk") is None:
        log.info("OTEL_* asks for telemetry, which needs mcp-toolserver[otel]")
        return lambda: None
    try:
        return _start_exporters(environ, exporters)
    except Exception as error:  # noqa: BLE001  exporters are others' code, and raise what they like
        log.warning("telemetry cannot be set up, so nothing is exported: %s: %s", type(error).__name__, error)
        return lambda: None


def _start_exporters(
    environ: Mapping[str, str], exporters: Mapping[str, Sequence[str]]
) -> Callable[[], None]:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The service name from the variables takes precedence.
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {SERVICE_NAME: "mcp-toolserver"})
    spans = TracerProvider(resource=resource)
    for exporter in _load_exporters("TRACES", exporters):
        spans.add_span_processor(BatchSpanProcessor(exporter))
    readers = [PeriodicExportingMetricReader(exporter) for exporter in _load_exporters("METRICS", exporters)]
    meters = MeterProvider(readers, resource=resource)
    trace.set_tracer_provider(spans)
    metrics.set_meter_provider(meters)
    return lambda: _flush(spans.force_flush, meters.force_flush)


def _flush(*sending: Callable[[], object]) -> None:
    """Flush pending data for a short time, in case the collector is unreachable."""
    threads = [threading.Thread(target=send, daemon=True) for send in sending]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _FLUSH_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _exporter_names(environ: Mapping[str, str], signal: str) -> list[str]:
    """Return the requested exporters; OTLP if only an endpoint is set."""
    given = environ.get(f"OTEL_{signal}_EXPORTER")
    addressed = _ENDPOINT in environ or f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" in environ
    names = [name.strip() for name in (given or ("otlp" if addressed else "")).split(",")]
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get(_PROTOCOL, "http/protobuf")
    known = {"otlp": "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"}
    return [known.get(name, name) for name in names if name not in ("", "none")]


def _load_exporters(signal: str, exporters: Mapping[str, Sequence[str]]) -> list[Any]:
    """Return the installed exporters of a signal."""
    group = f"opentelemetry_{signal.lower()}_exporter"
    found: list[Any] = []
    for name in exporters[signal]:
        points = entry_points(group=group, name=name)
        if not points:
            log.warning("OTEL_%s_EXPORTER: no exporter %r is installed; nothing goes there", signal, name)
        found += [point.load()() for point in points]
    return found
