"""The stages of a call: each gives what it promises, and fails as it says.

What is mended of arguments as clients send them, and what no tool ever sees.
"""

import json
import logging
from pathlib import Path
from typing import Literal

import anyio
import pytest
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import Conflict, NotFound
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol import translate
from mcp_toolserver.text.argument_cleanup import MAX_DEPTH, SAFE_INTEGER, lenient, placeholders, refusal
from mcp_toolserver.tool import Field, WorkspacePath, model_validator
from mcp_toolserver.tool_spec import Image, Record
from tests.support.cases import table
from tests.support.generated import ENTRIES
from tests.support.workbench import (
    Args,
    Capability,
    Output,
    Person,
    Runtime,
    dispatcher,
    machine,
    tool,
)


class Words(Args):
    word: str = Field(description="A word.")
    count: int = Field(default=1, ge=1, le=9, description="How often.")
    tone: Literal["soft", "loud"] = Field(default="soft", description="How.")
    parts: tuple[str, ...] = Field(default=(), strict=False, description="More words.")


class Somewhere(Args):
    path: WorkspacePath = Field(description="A path.")


class Secretive(Args):
    word: str = Field(description="A word.")

    @model_validator(mode="after")
    def _check(self) -> "Secretive":
        raise ValueError("word must be a better one")


async def say(args: Words, _: Runtime) -> Output:
    return Output(" ".join([args.word] * args.count + list(args.parts)))


async def call(
    target: Dispatcher, arguments: dict[str, JsonValue] | None = None, person: Person | None = None
) -> Result:
    with anyio.fail_after(10):
        return await target.call("probe", arguments, person or Person())


# --- find and validate -----------------------------------------------------------------------------------


@pytest.mark.requirement("GR-05")
async def test_a_good_call_gives_its_text_and_how_long_it_took(tmp_path: Path) -> None:
    result = await call(dispatcher(machine(tmp_path), tool(say, Words)), {"word": "a", "count": 2})
    assert (result.text, result.error) == ("a a", None)
    assert set(result.metadata()) == {"duration_ms", "call_id"}
    assert result.envelope() == {"type": "output", "data": "a a", "metadata": result.metadata()}


BAD: dict[str, tuple[dict[str, JsonValue] | None, str]] = {
    "missing arguments": (None, "word: Field required"),
    "missing": ({}, "word: Field required"),
    "MODE01": ({"word": "a", "permission_mode": "danger-full-access"}, "permission_mode: unknown"),
    "JSON09": ({"word": "a", "nope": 1}, "it takes word, count, tone, parts"),
    "JSON08, int for text": ({"word": 1}, "word"),
    "JSON08, bool for int": ({"word": "a", "count": True}, "count"),
    "JSON08, text for int": ({"word": "a", "count": "one"}, "count"),
    "JSON11, high": ({"word": "a", "count": 10**6}, "count"),
    "JSON11, negative": ({"word": "a", "count": -1}, "count"),
    "choice": ({"word": "a", "tone": "shrill"}, "'soft' or 'loud'"),
    "nan": ({"word": "a", "count": float("nan")}, "not finite"),
    "JSON02": ({"word": "a", "count": 10**4000}, "2^53"),
    "JSON05": ({"word": "\ud800"}, "surrogate"),
    "nul": ({"word": "a\0"}, "NUL"),
    "broken list": ({"word": "a", "parts": "[1"}, "parts"),
}
"""Arguments, and what the refusal names."""


@pytest.mark.requirement("GR-07")
async def test_bad_arguments_are_named_and_nothing_runs(tmp_path: Path) -> None:
    ran: list[Words] = []

    async def run(args: Words, _: Runtime) -> Output:
        ran.append(args)
        return Output("ran")

    target = dispatcher(machine(tmp_path), tool(run, Words))
    results = {name: await call(target, arguments) for name, (arguments, _) in BAD.items()}
    wrong = {
        name: result.text
        for name, result in results.items()
        if result.error != "invalid_input" or BAD[name][1] not in result.text
    }
    assert (wrong, ran) == ({}, [])


async def test_an_error_never_repeats_the_value_that_was_sent(tmp_path: Path) -> None:
    target = dispatcher(machine(tmp_path), tool(say, Secretive))
    result = await call(target, {"word": "hunter2"})
    assert result.text == "probe cannot use these arguments:\n- arguments: word must be a better one"
    assert "hunter2" not in (await call(target, {"word": 5, "x": "hunter2"})).text


# --- decide, watch, ask ----------------------------------------------------------------------------------


@pytest.mark.requirement("DA-58", "GR-08")
async def test_what_mode_settings_or_host_rule_out_is_not_listed_and_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    dear = tool(say, Words, permission=Permission.WORKSPACE_WRITE)
    host, read_only = machine(tmp_path), Permission.READ_ONLY
    for target, error, says in (
        (dispatcher(host, dear, ceiling=read_only), "denied", "requires workspace-write permission"),
        (dispatcher(host, dear, offered=()), "denied", "switched off"),
        (dispatcher(host, tool(say, Words, needs=[Capability.SEARCH])), "unavailable", ""),
    ):
        result = await call(target, {"word": "a"})
        assert (target.listed(), result.error, says in result.text) == ((), error, True), result.text
    assert [entry.spec.name for entry in dispatcher(host, dear).listed()] == ["probe"]


async def test_a_question_goes_to_the_person_and_no_means_no(tmp_path: Path) -> None:
    ran: list[str] = []

    async def note(args: Words, _: Runtime) -> Output:
        ran.append(args.word)
        return Output("done")

    target = dispatcher(
        machine(tmp_path), tool(note, Words, subjects=lambda args: (args.word,)), ask=["probe"]
    )
    yes, no = Person(says=True), Person(says=False)
    refused = await call(target, {"word": "a\x1b[2K\u202e"}, no)
    assert (refused.error, ran) == ("denied", [])
    assert "approval" in refused.text
    shown = ("Allow probe (read-only)?", r"a\x1b[2K\u202e", r'word: "a\u001b[2K\u{202e}"')
    assert no.asked == ["\n".join((*shown, "The rule probe wants it approved."))]
    assert (await call(target, {"word": "b"}, yes)).text == "done"
    assert ran == ["b"]


@pytest.mark.requirement("GR-62")
async def test_the_watchdog_can_refuse_what_the_rules_allow(tmp_path: Path) -> None:
    shell = tool(say, Words, kind="execute", script=lambda args: args.word)
    target = dispatcher(machine(tmp_path), shell, allow=["probe"])
    assert (await call(target, {"word": "rm -rf /"})).error == "denied"
    assert (await call(target, {"word": "ls"})).error is None


# --- grant and run ---------------------------------------------------------------------------------------


@pytest.mark.requirement("GR-66")
async def test_an_undeclared_capability_is_out_of_reach(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def reach(args: Words, rt: Runtime) -> Output:
        getattr(rt, args.word)
        return Output("reached")

    target = dispatcher(machine(tmp_path), tool(reach, Words))
    with caplog.at_level(logging.CRITICAL):
        for capability in ("fs", "search", "processes", "jobs"):
            assert (await call(target, {"word": capability})).error == "internal", capability


@pytest.mark.requirement("GR-63", "GR-66")
async def test_a_tool_that_declares_reading_cannot_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(args: Somewhere, rt: Runtime) -> Output:
        await rt.fs.write(args.path, b"x")
        return Output("written")

    with caplog.at_level(logging.CRITICAL):
        sly = tool(write, Somewhere, needs=[Capability.FS_READ])
        assert (await call(dispatcher(machine(tmp_path), sly), {"path": "f"})).error == "internal"
    assert list((tmp_path / "root").iterdir()) == []
    honest = tool(write, Somewhere, needs=[Capability.FS_WRITE])
    assert (await call(dispatcher(machine(tmp_path), honest), {"path": "f"})).text == "written"


async def test_a_tool_error_keeps_its_kind_and_text(tmp_path: Path) -> None:
    async def fail(args: Words, _: Runtime) -> Output:
        raise NotFound("no such thing") if args.word == "a" else Conflict(args.word)

    target = dispatcher(machine(tmp_path), tool(fail, Words))
    first, second = await call(target, {"word": "a"}), await call(target, {"word": "b" * 50_000})
    assert (first.error, first.text) == ("not_found", "no such thing")
    assert second.error == "conflict"
    assert len(second.text) <= 48_000
    assert f'read all of it with read_file, path "{second.metadata()["output_path"]}"' in second.text
    assert first.envelope() == {
        "type": "error", "kind": "not_found", "error_text": "no such thing", "metadata": first.metadata(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "permission"),
    [
        ("other", Permission.READ_ONLY),  # waiting holds no place
        ("edit", Permission.WORKSPACE_WRITE),  # writes are bounded by their locks
    ],
)
async def test_calls_that_do_not_read_run_in_parallel(
    kind: Literal["other", "edit"], permission: Permission, tmp_path: Path
) -> None:
    running = 0
    release = anyio.Event()

    async def wait(_: Args, __: Runtime) -> Output:
        nonlocal running
        running += 1
        await release.wait()
        return Output("")

    target = dispatcher(machine(tmp_path), tool(wait, kind=kind, permission=permission))
    async with anyio.create_task_group() as tasks:
        for _ in range(15):
            tasks.start_soon(target.call, "probe", {}, Person())
        await anyio.wait_all_tasks_blocked()
        assert running == 15
        release.set()


# --- envelope and truncate -------------------------------------------------------------------------------


class Empty(Record):
    pass


class Listed(Record):
    items: tuple[str, ...] = ()


async def test_a_record_is_returned_as_data_with_the_text_also_an_empty_one(tmp_path: Path) -> None:
    data: tuple[tuple[Record, dict[str, JsonValue]], ...] = (
        (Empty(), {}),
        (Listed(), {"items": []}),
        (Listed(items=("a",)), {"items": ["a"]}),
    )
    for record, expected in data:

        async def look(_: Args, __: Runtime, record: Record = record) -> Output:
            return Output("one", data=record, images=(Image(data=b"x", mime_type="image/png"),))

        result = await call(dispatcher(machine(tmp_path), tool(look)))
        assert (result.text, result.data, len(result.images)) == ("one", expected, 1)
        assert result.envelope()["data"] == expected
        assert translate.result(result, "2025-06-18")["structuredContent"] == expected


SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "note": {"type": "string"},
        "edits": {"type": "array"},
        "options": {"type": "object"},
    },
    "required": ["path"],
}


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED: dict[str, JsonValue] = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "beyond safe": SAFE_INTEGER + 1,
    "JSON02": -(10**4000),
    "nul": "a\0b",
    "JSON05": "\ud800",
    "nul in key": {"k\0": 1},
    "deep surrogate": [{"a": ["\udfff"]}],
    "deep": nested(MAX_DEPTH + 1),
}
ORDINARY: tuple[JsonValue, ...] = (
    *(SAFE_INTEGER, -SAFE_INTEGER, 1.5, True, None, "日本 🎉\r\n\t"),
    *(nested(MAX_DEPTH), {"a": [{}]}),
)


def test_only_values_that_no_tool_may_see_are_refused() -> None:
    assert [name for name, value in REFUSED.items() if not refusal(value)] == []
    assert [value for value in ORDINARY if refusal(value)] == []


def test_lists_and_objects_sent_as_text_are_parsed() -> None:
    sent: dict[str, JsonValue] = {"path": "x", "edits": json.dumps([1]), "options": json.dumps({"a": 1})}
    assert lenient(sent, SCHEMA) == {"path": "x", "edits": [1], "options": {"a": 1}}


def test_text_that_is_no_list_stays_for_validation() -> None:
    for text in ("[1", '{"a": 1}', "1", "[" * 100_000):
        assert lenient({"path": "x", "edits": text}, SCHEMA)["edits"] == text
    assert lenient({"path": "[1]"}, SCHEMA) == {"path": "[1]"}, "where a text is expected"


def test_nothing_counts_as_not_sent_where_the_argument_is_optional() -> None:
    for nothing in (None, ""):
        assert lenient({"path": "x", "note": nothing, "edits": nothing}, SCHEMA) == {"path": "x"}
        assert lenient({"path": nothing}, SCHEMA) == {"path": nothing}
    values: dict[str, JsonValue] = {"path": "x", "note": False, "edits": 0}
    assert lenient(values, SCHEMA) == values


def test_an_unknown_argument_stays_for_validation_unless_it_holds_nothing() -> None:
    closed: dict[str, JsonValue] = {**SCHEMA, "additionalProperties": False}
    assert lenient({"path": "x", "nope": 0}, closed) == {"path": "x", "nope": 0}
    for nothing in (None, "", [], {}):
        assert lenient({"path": "x", "nope": nothing}, closed) == {"path": "x"}
    # Where any argument is allowed, all of them stay.
    sent: dict[str, JsonValue] = {"path": "x", "nope": "", "explanation": "of the user's"}
    assert lenient(sent, SCHEMA) == sent


def test_an_optional_argument_that_is_the_zero_of_its_type_may_be_a_placeholder() -> None:
    schema: dict[str, JsonValue] = {
        "properties": {
            **{name: {"type": "integer"} for name in ("needed", "count", "given", "absent")},
            "ratio": {"type": "number"},
            "word": {"type": "string"},
            "other_word": {"type": "string"},
            "is_on": {"type": "boolean"},
            "any": {},
        },
        "required": ["needed"],
    }
    zeros = ("needed", "count", "other_word", "any", "unknown")
    sent: dict[str, JsonValue] = {
        **dict.fromkeys(zeros, 0),
        "given": 1,
        "ratio": 0.0,
        "word": "",
        "is_on": False,
    }
    assert placeholders(sent, schema) == {"count", "ratio", "word"}


def test_an_empty_field_of_an_object_counts_as_not_sent_wherever_the_object_is() -> None:
    item: JsonValue = {
        "type": "object",
        "properties": {"what": {"type": "string"}, "how": {"type": "string"}, "free": {"minLength": 0}},
        "required": ["what"],
    }
    schema: dict[str, JsonValue] = {
        "properties": {"one": item, "all": {"type": "array", "items": item}, "any": {"type": "object"}}
    }
    given: dict[str, JsonValue] = {"what": "", "how": "", "free": ""}
    kept: dict[str, JsonValue] = {"what": "", "free": ""}
    sent: dict[str, JsonValue] = {"one": given, "all": [given, "text", json.dumps(given)], "any": given}
    assert lenient(sent, schema) == {"one": kept, "all": [kept, "text", kept], "any": given}


SCHEMAS = {entry.spec.name: entry.spec.schema for entry in ENTRIES}

ARGUMENTS = Path(__file__).with_name("arguments.txt")


def test_what_says_the_same_is_taken() -> None:
    taken = [(tool, json.loads(sent), json.loads(counts)) for tool, sent, counts in table(ARGUMENTS, "taken")]
    assert [(tool, sent, lenient(sent, SCHEMAS[tool])) for tool, sent, _ in taken] == taken


def test_what_would_change_the_meaning_is_left_for_validation() -> None:
    left = [(tool, json.loads(sent)) for tool, sent in table(ARGUMENTS, "left")]
    assert [(tool, lenient(sent, SCHEMAS[tool])) for tool, sent in left] == left
