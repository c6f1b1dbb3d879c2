"""What operators see of calls: lines on standard error, spans, metrics, and one id in all of them."""

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation
from opentelemetry import trace

from mcp_toolserver.errors import NotFound, UnknownTool
from mcp_toolserver.pipeline.call import CallOptions
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol.translate import correlation
from mcp_toolserver.stores.audit_log import AuditContext, AuditLog
from mcp_toolserver.telemetry.call_log import log_call
from mcp_toolserver.telemetry.json_log import JsonLines
from mcp_toolserver.telemetry.otel_setup import start
from tests.support.families import lines as lines_of_audit_log
from tests.support.live import Setup, serving
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


async def test_one_id_is_in_the_answer_the_audit_log_and_the_log_also_when_an_observer_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    audit = AuditLog(str(tmp_path / "state"), AuditContext(mode="read-only", layers={}))
    at = echoing(tmp_path, recorder=audit, observers=(failing, log_call))
    calls = [(word, given) for given in (CLIENTS_OWN, "") for word in ("x", "none", "bug")]
    results = [
        await at.call("echo", {"word": word}, Person(), CallOptions(call_id=given)) for word, given in calls
    ]
    audit.close()
    lines = lines_of_audit_log(tmp_path)
    ids = [result.call_id for result in results]
    assert [result.error for result in results] == [None, "not_found", "internal"] * 2
    assert [line["outcome"] for line in lines] == ["output", "not_found", "internal"] * 2
    assert caplog.text.count("ZeroDivisionError: of the observer") == len(ids)
    assert (ids[:3], len(set(ids))) == ([CLIENTS_OWN] * 3, 4)
    assert [result.metadata()["call_id"] for result in results] == ids
    assert [line["call"] for line in lines] == ids
    assert [record.__dict__["facts"]["call_id"] for record in caplog.records if record.name == LOGGER] == ids
    assert ids[2] in results[2].text
    assert "a bug" in caplog.text
    assert "a bug" not in results[2].text


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


async def test_observers_get_every_call_that_ran_and_a_recorder_can_keep_it_or_its_answer_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def run(_: Args, __: Runtime) -> Output:
        ran.append("output")
        return Output("the answer")

    at = dispatcher(machine(tmp_path), tool(run))
    fails = "details under"
    for recorder, says, outcomes in (
        (Recorder(at_begin="no room", fails="end"), "no room", []),
        (Recorder(at_end="withheld"), "withheld", ["output"]),
        (Recorder(fails="begin"), fails, []),
        (Recorder(fails="end"), fails, ["output"]),
        (None, "the answer", ["output"]),
    ):
        records: list[CallRecord] = []
        ran.clear()
        result = await replace(at, recorder=recorder, observers=(records.append,)).call("probe", {}, Person())
        assert says in result.text
        assert result.error == (None if recorder is None else "unavailable")
        assert [call.outcome for call in records] == ran == outcomes
        assert len(result.call_id) == 16
        assert (result.call_id in result.text) == (says == fails)
        assert ("the answer" in result.text) == (recorder is None)
        assert "of the recorder" not in result.text
    assert caplog.text.count("ZeroDivisionError: of the recorder") == 2


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


async def test_a_line_of_text_shows_nothing_that_was_sent_and_no_control_character(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    at = echoing(tmp_path, observers=(log_call,))
    await at.call("echo", {"word": SECRET}, Person(name="evil\x1b[2J\n\u202e"))
    with pytest.raises(UnknownTool):
        await at.call(SECRET, {}, Person())
    known, unknown = caplog.records
    assert SECRET not in caplog.text
    assert known.getMessage().isprintable()
    assert known.getMessage().isascii()
    assert known.__dict__["facts"]["bytes"] == len(SECRET) + 2
    assert unknown.__dict__["facts"]["tool"] is None
    assert unknown.getMessage().startswith("unknown tool")


def test_an_error_is_one_line_of_json() -> None:
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


CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("read_file", {"path": SECRET}, "output"),
    ("read_file", {"path": SECRET * 2}, "not_found"),
    ("bash", {"x": SECRET}, "invalid_input"),
    ("no_such_tool", {"x": SECRET}, "unknown_tool"),
)
"""What a client asks, and the outcome; the first two are part of a trace of the client's."""


def values_of_json(text: str) -> list[dict[str, Any]]:
    """The values that follow each other in `text`, each on a line or over several."""
    found, at = list[dict[str, Any]](), 0
    while at < len(text):
        value, at = json.JSONDecoder().raw_decode(text, at)
        found.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


async def test_a_server_logs_and_exports_every_call_and_no_value_and_sends_the_rest_at_its_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / SECRET).write_text("text\n", encoding="utf-8")
    environ = {"OTEL_TRACES_EXPORTER": "console, missing", "OTEL_METRICS_EXPORTER": "console"}
    flags = ("--log-level", "info", "--log-format", "json")
    setup = Setup(root=tmp_path / "root", home=tmp_path, flags=flags, environ=environ)
    server = StdioServerParameters(
        command=setup.command[0], args=setup.command[1:], env=setup.environment, cwd=str(tmp_path)
    )
    metas: list[Mapping[str, Any]] = []
    with (tmp_path / "said").open("w+", encoding="utf-8") as said_to:
        info = Implementation(name="c", version="7")
        async with Client(stdio_client(server, errlog=said_to), mode="legacy", client_info=info) as client:
            for meta, (name, given, outcome) in zip((META, META, None, None), CALLS, strict=True):
                with pytest.raises(MCPError) if outcome == "unknown_tool" else nullcontext():
                    metas.append((await client.call_tool(name, given, meta=meta)).meta or {})
        said_to.seek(0)
        said = said_to.read()
    assert SECRET not in said
    assert "no exporter 'missing' is installed" in said
    # Only a client that traces its calls gets their metadata.
    ids = [meta.get("mcp-toolserver/metadata", {}).get("call_id") for meta in metas]
    assert ids == [CLIENTS_OWN, CLIENTS_OWN, None]
    values = values_of_json(said)

    records = {value["outcome"]: value for value in values if value.get("logger") == LOGGER}
    outcomes = [outcome for *_, outcome in CALLS]
    assert records.keys() == {*outcomes}
    for record in records.values():
        assert record.keys() == {
            "time", "level", "logger", "message", "tool", "permission", "verdict", "outcome",
            "duration_ms", "bytes", "call_id", "client", "user",
        }  # fmt: skip
        assert (record["client"], record["message"]) == ("c 7", "call")
    assert [records[outcome]["call_id"] for outcome in outcomes[:2]] == [CLIENTS_OWN] * 2

    prefix = "mcp_toolserver."
    spans = [value for value in values if f"{prefix}outcome" in value.get("attributes", {})]
    assert {span["attributes"][f"{prefix}outcome"] for span in spans} == {*outcomes}
    for span in spans:
        own = {name.removeprefix(prefix): value for name, value in span["attributes"].items()}
        record = records[own["outcome"]]
        named = ("tool", "permission", "verdict", "outcome", "bytes", "call_id", "client")
        assert {name: own.get(name) for name in named} == {name: record[name] for name in named}
        assert own["duration_ms"] > 0
        assert (span["context"]["trace_id"] == f"0x{TRACE}") == (record["call_id"] == CLIENTS_OWN)
        assert span["resource"]["attributes"]["service.name"] == "mcp-toolserver"

    (measured,) = [
        {metric["name"]: metric["data"]["data_points"] for metric in scope["metrics"]}
        for value in values
        for resource in value.get("resource_metrics", ())
        for scope in resource["scope_metrics"]
        if scope["scope"]["name"] == "mcp_toolserver"
    ]
    counted = {point["attributes"]["outcome"]: point for point in measured["mcp_toolserver.calls"]}
    assert {outcome: point["value"] for outcome, point in counted.items()} == dict.fromkeys(outcomes, 1)
    assert counted["output"]["attributes"].keys() == {"tool", "permission", "verdict", "outcome"}
    assert counted["unknown_tool"]["attributes"].keys() == {"verdict", "outcome"}
    sizes = {point["attributes"]["outcome"]: point["sum"] for point in measured["mcp_toolserver.call.size"]}
    assert sizes == {outcome: records[outcome]["bytes"] for outcome in outcomes}
    assert all(point["sum"] > 0 for point in measured["mcp_toolserver.call.duration"])


@pytest.mark.long
async def test_an_http_server_announces_itself_in_json(tmp_path: Path) -> None:
    with serving(Setup.below(tmp_path, "read-only", "--log-format", "json"), "http") as url:
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith('"}'), "the line is JSON"


STARTED = """
import sys
import mcp_toolserver.app.serve, mcp_toolserver.app.compose, mcp_toolserver.main
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.telemetry import is_tracing, observers
from mcp_toolserver.text.documents.file_type import document_kind
assert not is_tracing()
assert observers("warning") == ()
discover()
assert document_kind("f.py", b"import os") is None
heavy = {"nbformat", "jsonschema", "pypdf", "docx", "lxml", "openpyxl", "opentelemetry.sdk",
         "mcp_toolserver.telemetry.otel", "mcp_toolserver.text.documents.documents"}
print(heavy & set(sys.modules))
"""


def test_neither_telemetry_nor_libraries_for_documents_are_imported_before_they_are_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"


def test_nothing_is_exported_unless_it_is_asked_for_with_settings_that_telemetry_can_use(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = trace.get_tracer_provider()
    start({})()
    start({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": ""})()
    start({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "True"})()
    assert trace.get_tracer_provider() is before
    for wrong, value in (("OTEL_BSP_MAX_QUEUE_SIZE", "-1"), ("OTEL_METRIC_EXPORT_INTERVAL", "-5")):
        caplog.clear()
        with monkeypatch.context() as patching:
            patching.setenv(wrong, value)
            start({"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"})()
        assert "so nothing is exported: ValueError" in caplog.text, wrong
        assert trace.get_tracer_provider() is before


def test_an_address_alone_asks_for_the_exporter_of_otlp(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("trace.set_tracer_provider", "metrics.set_meter_provider"):
        monkeypatch.setattr(f"opentelemetry.{name}", lambda _: None)
    start({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})()
    assert "no exporter 'otlp_proto_http' is installed" in caplog.text
