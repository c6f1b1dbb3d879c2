"""What operators see of calls: lines on standard error, spans, metrics, and one id in all of them."""

import json
import logging
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_toolserver.errors import NotFound, UnknownTool
from mcp_toolserver.pipeline.call import CallOptions
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.translate import correlation
from mcp_toolserver.stores.audit_log import AuditContext, AuditLog
from mcp_toolserver.telemetry import is_tracing, observers
from mcp_toolserver.telemetry.call_log import log_call
from mcp_toolserver.telemetry.json_log import JsonLines
from mcp_toolserver.telemetry.otel_setup import start
from tests.support.families import lines as lines_of_audit_log
from tests.support.live import ERAS, Setup, serving
from tests.support.workbench import Args, Output, Person, Runtime, dispatcher, machine, tool

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENTS_OWN = f"{TRACE}-{SPAN}"
META: Any = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
LOGGER = "mcp_toolserver.telemetry.call_log"
SECRET = "value-of-an-argument"


class Word(Args):
    word: str = ""


async def echo(args: Word, _: Runtime) -> Output:
    if args.word == "none":
        raise NotFound("there is none")
    if args.word == "bug":
        raise RuntimeError("a bug")
    return Output("é" + args.word)


def echoing(folder: Path, **options: Any) -> Dispatcher:
    return replace(dispatcher(machine(folder), tool(echo, Word, name="echo")), **options)


# --- one id ----------------------------------------------------------------------------------------------


TRACEPARENTS: dict[object, str] = {
    f"00-{TRACE}-{SPAN}-01": CLIENTS_OWN,
    f"cc-{TRACE}-{SPAN}-00": CLIENTS_OWN,  # a later version
    7: "",
    f"00-{TRACE.upper()}-{SPAN}-01": "",
    f"00-{TRACE}-{SPAN}-01\n": "",
    f"00-{'0' * 32}-{SPAN}-01": "",
    f"00-{TRACE}-{'0' * 16}-01": "",
    SECRET: "",
}


def test_a_call_goes_by_the_trace_and_span_that_its_client_sends() -> None:
    assert {sent: correlation({"traceparent": sent}) for sent in TRACEPARENTS} == TRACEPARENTS
    assert correlation(None) == correlation({}) == ""


def failing(_: CallRecord) -> None:
    raise ZeroDivisionError("of the observer")


@pytest.mark.parametrize("given", [CLIENTS_OWN, ""], ids=["the-clients-own", "ours"])
async def test_one_id_is_in_the_answer_the_audit_log_and_the_log_also_when_an_observer_fails(
    given: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    audit = AuditLog(str(tmp_path / "state"), AuditContext(mode="read-only", layers={}))
    at = echoing(tmp_path, recorder=audit, observers=(failing, log_call))
    results = [
        await at.call("echo", {"word": word}, Person(), CallOptions(call_id=given))
        for word in ("x", "none", "bug")
    ]
    audit.close()
    lines = lines_of_audit_log(tmp_path)
    ids = [result.call_id for result in results]
    assert [result.error for result in results] == [None, "not_found", "internal"]
    assert [line["outcome"] for line in lines] == ["output", "not_found", "internal"]
    assert caplog.text.count("ZeroDivisionError: of the observer") == len(ids)
    assert ids == [given] * 3 if given else len(set(ids)) == 3
    assert [result.metadata()["call_id"] for result in results] == ids
    assert [line["call"] for line in lines] == ids
    assert [record.__dict__["facts"]["call_id"] for record in caplog.records if record.name == LOGGER] == ids
    assert ids[2] in results[2].text
    assert "a bug" in caplog.text
    assert "a bug" not in results[2].text


@pytest.mark.parametrize("era", ERAS)
async def test_only_a_client_that_traces_its_calls_gets_their_metadata(era: str, tmp_path: Path) -> None:
    handlers = Handlers(dispatcher=echoing(tmp_path), ask_seconds=5)
    async with Client(ToolServer(handlers, ""), mode=era, read_timeout_seconds=10) as client:
        own = await client.call_tool("echo", {}, meta=META)
        ours = await client.call_tool("echo", {})
    assert (own.meta or {})["mcp-toolserver/metadata"]["call_id"] == CLIENTS_OWN
    assert "mcp-toolserver/metadata" not in (ours.meta or {})


# --- who gets a record -----------------------------------------------------------------------------------


@dataclass
class Recorder:
    """Answers as it is told, or fails in a way that it does not know of itself."""

    at_begin: str | None = None
    at_end: str | None = None
    fails: str = ""

    async def begin(self, call: CallRecord) -> str | None:
        return self._answer("begin", self.at_begin)

    async def end(self, call: CallRecord) -> str | None:
        return self._answer("end", self.at_end)

    def _answer(self, stage: str, answer: str | None) -> str | None:
        if self.fails == stage:
            raise ZeroDivisionError("of the recorder")
        return answer


async def test_observers_get_every_call_that_ran_and_no_other(tmp_path: Path) -> None:
    for recorder, answer, ran in (
        (Recorder(at_begin="no room", fails="end"), "no room", []),
        (Recorder(at_end="withheld"), "withheld", ["output"]),
        (None, "é", ["output"]),
    ):
        records: list[CallRecord] = []
        at = echoing(tmp_path, recorder=recorder, observers=(records.append,))
        result = await at.call("echo", {}, Person())
        assert (result.text, len(result.call_id)) == (answer, 16)
        assert result.error == (None if recorder is None else "unavailable")
        assert [call.outcome for call in records] == ran


async def test_an_observer_that_fails_does_not_stop_a_cancellation(tmp_path: Path) -> None:
    async def forever(_: Args, __: Runtime) -> Output:
        await anyio.sleep_forever()
        raise AssertionError

    at = replace(
        dispatcher(machine(tmp_path), tool(forever, name="forever")),
        observers=(failing,),
    )
    with anyio.move_on_after(0.05) as scope:
        await at.call("forever", {}, Person())
    assert scope.cancelled_caught


async def test_a_recorder_that_fails_keeps_the_call_from_running_or_its_answer_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def run(args: Word, _: Runtime) -> Output:
        ran.append(args.word)
        return Output("the answer")

    for stage in ("begin", "end"):
        at = replace(
            dispatcher(machine(tmp_path), tool(run, Word, name="run")), recorder=Recorder(fails=stage)
        )
        result = await at.call("run", {"word": stage}, Person())
        assert result.error == "unavailable"
        assert "the answer" not in result.text
        assert "of the recorder" not in result.text
        assert result.call_id in result.text
    assert ran == ["end"]
    assert caplog.text.count("ZeroDivisionError: of the recorder") == 2


# --- lines -----------------------------------------------------------------------------------------------


async def test_a_line_says_what_became_of_the_call_and_nothing_that_was_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    at = echoing(tmp_path, observers=(log_call,))
    await at.call(
        "echo", {"word": SECRET}, Person(name="evil\x1b[2J\n\u202e"), CallOptions(call_id=CLIENTS_OWN)
    )
    with pytest.raises(UnknownTool):
        await at.call(SECRET, {}, Person())
    known, unknown = caplog.records
    assert SECRET not in caplog.text
    assert known.getMessage().isprintable()
    assert known.getMessage().isascii()
    call_fields = known.__dict__["facts"]
    assert call_fields["duration_ms"] > 0
    assert call_fields | {"duration_ms": 0} == {
        "tool": "echo", "permission": "read-only", "verdict": "allowed", "outcome": "output",
        "duration_ms": 0, "bytes": len(SECRET) + 2, "call_id": CLIENTS_OWN,
        "client": "evil\x1b[2J\n\u202e",
        "user": None,
    }  # fmt: skip
    assert unknown.__dict__["facts"]["tool"] is None
    assert unknown.getMessage().startswith("unknown tool")


def test_every_record_is_one_line_of_json() -> None:
    try:
        raise ValueError("of what\nexactly")
    except ValueError:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "%s\u202e\nfailed", ("it",), sys.exc_info())
    line = JsonLines().format(record)
    record = json.loads(line)
    assert line.isascii()
    assert "\n" not in line
    assert (record["level"], record["logger"], record["message"]) == ("error", "n", "it\u202e\nfailed")
    assert record["exception"].endswith("ValueError: of what\nexactly")


def started(folder: Path, *flags: str, **environ: str) -> Setup:
    root = folder / "root"
    root.mkdir()
    (root / SECRET).write_text("text\n", encoding="utf-8")
    return Setup(root=root, home=folder, flags=flags, environ=environ)


async def lines_of(setup: Setup) -> list[str]:
    """What a server on stdio says on standard error while it answers, fails and refuses."""
    call: dict[str, Any] = {"jsonrpc": "2.0", "method": "tools/call"}
    asked = [("read_file", {"path": SECRET}), ("read_file", {"path": SECRET * 2}), ("bash", {"x": SECRET})]
    client = {"name": "a client", "version": "7"}
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(
            call | {"id": number, "params": {"name": name, "arguments": arguments, "_meta": META}}
            for number, (name, arguments) in enumerate(asked, 1)
        ),
    ]
    with anyio.fail_after(60):
        async with await anyio.open_process(setup.command, env=setup.environment) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            await process.stdin.send(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
            answers = b""
            while answers.count(b"\n") < 1 + len(asked):
                answers += await process.stdout.receive()
            await process.stdin.aclose()
            said = b"".join([chunk async for chunk in process.stderr])
            assert await process.wait() == 0
    return said.decode().splitlines()


async def test_a_server_on_stdio_logs_json_and_no_value(tmp_path: Path) -> None:
    setup = started(tmp_path, "--log-level", "info", "--log-format", "json")
    said = await lines_of(setup)
    records = [line for line in map(json.loads, said) if line["logger"] == LOGGER]
    by_outcome = {line["outcome"]: line for line in records}
    assert set(by_outcome) == {"output", "not_found", "invalid_input"}
    for line in records:
        assert set(line) == {
            "time", "level", "logger", "message", "tool", "permission", "verdict", "outcome",
            "duration_ms", "bytes", "call_id", "client", "user",
        }  # fmt: skip
        assert (line["call_id"], line["client"], line["message"]) == (CLIENTS_OWN, "a client 7", "call")
    assert SECRET not in "\n".join(said)


@pytest.mark.long
async def test_an_http_server_announces_itself_in_json(tmp_path: Path) -> None:
    with serving(started(tmp_path, "--log-format", "json"), "http") as url:
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith('"}'), "the line is JSON"


# --- OpenTelemetry ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported() -> Generator[tuple[InMemorySpanExporter, InMemoryMetricReader]]:
    """OpenTelemetry's SDK set up as an operator would, but for where it sends to.

    It stays set up for the rest of the process, which is all it offers; what it makes is thrown away then.
    """
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    yield spans, reader
    spans.shutdown()


@pytest.mark.parametrize("era", ERAS)
async def test_the_span_of_a_request_tells_of_the_call(
    era: str, exported: tuple[InMemorySpanExporter, InMemoryMetricReader], tmp_path: Path
) -> None:
    spans, _ = exported
    spans.clear()
    at = echoing(tmp_path, observers=observers("warning"))
    async with Client(ToolServer(Handlers(dispatcher=at, ask_seconds=5), ""), mode=era) as client:
        await client.call_tool("echo", {"word": SECRET}, meta=META)
    found = spans.get_finished_spans()
    (span,) = [span for span in found if "mcp_toolserver.tool" in (span.attributes or {})]
    attributes = dict(span.attributes or {})
    assert attributes["mcp_toolserver.duration_ms"]
    assert {name: value for name, value in attributes.items() if name.startswith("mcp_toolserver.")} == {
        "mcp_toolserver.tool": "echo",
        "mcp_toolserver.permission": "read-only",
        "mcp_toolserver.verdict": "allowed",
        "mcp_toolserver.outcome": "output",
        "mcp_toolserver.duration_ms": attributes["mcp_toolserver.duration_ms"],
        "mcp_toolserver.bytes": len(SECRET) + 2,
        "mcp_toolserver.call_id": attributes["mcp_toolserver.call_id"],
        "mcp_toolserver.client": "mcp 0.1.0",
    }
    assert span.context is not None
    assert str(attributes["mcp_toolserver.call_id"]).startswith(f"{span.context.trace_id:032x}-")
    assert SECRET not in span.to_json()


async def test_calls_are_counted_and_measured(
    exported: tuple[InMemorySpanExporter, InMemoryMetricReader], tmp_path: Path
) -> None:
    _, reader = exported
    reader.get_metrics_data()
    at = echoing(tmp_path, observers=observers("warning"))
    for word in ("one", "two", "none"):
        await at.call("echo", {"word": word}, Person())
    with pytest.raises(UnknownTool):
        await at.call(SECRET, {}, Person())
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        if scope.scope.name == "mcp_toolserver"
        for metric in scope.metrics
    }
    counted: dict[str, Any] = {
        str((point.attributes or {})["outcome"]): point for point in found["mcp_toolserver.calls"]
    }
    assert counted["output"].value >= 2
    assert [counted[name].value for name in ("not_found", "unknown_tool")] == [1, 1]
    assert set(counted["not_found"].attributes) == {"tool", "permission", "verdict", "outcome"}
    assert set(counted["unknown_tool"].attributes) == {"verdict", "outcome"}
    sizes: dict[str, Any] = {
        str((point.attributes or {})["outcome"]): point for point in found["mcp_toolserver.call.size"]
    }
    assert sizes["not_found"].sum == len("there is none")
    assert all(getattr(point, "sum", 0) > 0 for point in found["mcp_toolserver.call.duration"])


UNTRACED = """
import sys
import mcp_toolserver.app.serve, mcp_toolserver.app.compose, mcp_toolserver.main
from mcp_toolserver.telemetry import is_tracing, observers
assert not is_tracing()
assert observers("warning") == ()
print([name for name in sys.modules if "observe." in name or name.startswith("opentelemetry.sdk")])
"""


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNTRACED], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
    assert is_tracing()


def test_nothing_is_exported_unless_that_is_asked_for() -> None:
    before = trace.get_tracer_provider()
    start({})()
    start({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": ""})()
    start({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "True"})()
    assert trace.get_tracer_provider() is before


def test_without_the_package_the_log_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    caplog.set_level(logging.INFO, "mcp_toolserver.telemetry.otel_setup")
    start({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})()
    assert "mcp-toolserver[otel]" in caplog.text


async def test_a_server_exports_as_the_variables_say_and_sends_the_rest_at_its_end(tmp_path: Path) -> None:
    setup = started(
        tmp_path,
        OTEL_TRACES_EXPORTER="console, missing",
        OTEL_METRICS_EXPORTER="console",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    )
    said = "\n".join(await lines_of(setup))
    assert '"mcp_toolserver.tool": "read_file"' in said
    assert '"name": "mcp_toolserver.call.duration"' in said
    assert '"service.name": "mcp-toolserver"' in said
    assert f'"trace_id": "0x{TRACE}"' in said
    assert "no exporter 'missing' is installed" in said
    assert SECRET not in said


async def test_a_setting_that_telemetry_cannot_use_is_logged_and_does_not_stop_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporters = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    says = "so nothing is exported: ValueError"
    queue = {**exporters, "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}
    # It says nothing else, so nothing of calls.
    (said,) = await lines_of(started(tmp_path, **queue))
    assert says in said
    before = trace.get_tracer_provider()
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "-5")
    start(exporters)()
    assert says in caplog.text
    assert trace.get_tracer_provider() is before


def test_an_address_alone_asks_for_the_exporter_of_otlp(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("trace.set_tracer_provider", "metrics.set_meter_provider"):
        monkeypatch.setattr(f"opentelemetry.{name}", lambda _: None)
    start({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})()
    assert "no exporter 'otlp_proto_http' is installed" in caplog.text
