"""The examples of the systems that the library follows, said in its own API."""

import base64
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic.types import ToolParam, ToolResultBlockParam, ToolUseBlock
from openai.types.responses.response_input_item_param import FunctionCallOutput
from pydantic import Base64Bytes, BaseModel, JsonValue, TypeAdapter, create_model

from mcp_toolserver import custom_tools as lib
from mcp_toolserver.custom_tools import ToolContext, ToolParameter, ToolRegistry, ToolResult
from mcp_toolserver.tool import Args
from tests.custom_tools.test_library import CONTEXT, City, FileReader, call, forecast, made, searching, served
from tests.pipeline.test_registry import SOURCES
from tests.support.cases import table

DOT = lib.Image(data=b"\x89PNG", mime_type="image/png")
DOT_TEXT = base64.b64encode(DOT.data).decode()


# --- Open Agent SDK Swift: a tool from typed input, in a pool, in the API's form, narrowed by a skill -------


OWN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city_name": {"type": "string", "enum": ["Rome", "Oslo"]}, "days": {"type": "integer"}},
    "required": ["city_name"],
}


def weather(**declared: Any) -> lib.BuiltTool:
    return lib.define_tool("weather", "The weather.", forecast, City, is_read_only=True, **declared)


@pytest.mark.requirement("SW-76", "SW-78", "SW-37", "SW-87")
async def test_a_schema_of_ones_own_stands_for_a_model_and_arguments_must_fit_both() -> None:
    tool = weather(input_schema=OWN_SCHEMA)
    assert tool.input_schema == OWN_SCHEMA
    assert (await tool.execute({"city_name": "Rome", "days": 2}, CONTEXT)).output == "Rome: sun for 2 days"
    refused: tuple[dict[str, Any], ...] = ({"city_name": "Bonn"}, {"city_name": "Rome", "days": 0}, {})
    for arguments in refused:
        assert "weather cannot use these arguments" in (await tool.execute(arguments, CONTEXT)).text
    for wrong in ({"input_schema": {"type": "array"}}, {"is_open_worlds": True}):
        with pytest.raises(lib.RegistrationError):
            weather(**wrong)
    with pytest.raises(lib.RegistrationError, match="goes with a model"):
        lib.define_tool("t", "d", print, None, OWN_SCHEMA)
    # The API takes no annotations, so they are for those who ask.
    assert lib.to_anthropic(tool).keys() <= ToolParam.__annotations__.keys()
    for says in (True, False):
        hints: Any = lib.to_anthropic(weather(is_open_world=says), annotations=True)["annotations"]
        assert (hints["openWorldHint"], hints["readOnlyHint"]) == (says, True)


# --- claw-code: a table of specs, and an executor of closures -----------------------------------------------


@pytest.mark.requirement("CL-39", "CL-40", "CL-48")
def test_the_table_of_specs_has_every_tool_at_its_level() -> None:
    specs = {spec.name: spec for spec in lib.tool_specs()}
    levels = dict(table(SOURCES, "levels"))
    assert {name: specs[name].own_permission.flag for name in levels} == levels
    assert all(spec.description and spec.schema["type"] == "object" for spec in specs.values())


CALLS: tuple[tuple[str, JsonValue, str], ...] = (
    ("add", '{"terms": [2, 2]}', "4"),
    ("add", {"terms": [1]}, "1"),
    ("search_code", '{"pattern": "x"}', "x in /tmp"),
    ("add", '{"terms": [2', "are not JSON"),
    ("add", '{"terms": NaN}', "are not JSON"),
    ("add", "[2]", "must be a JSON object"),
    ("add", "", "add failed: KeyError"),
    ("sub", "{}", "Unknown tool: sub. There are: add, wipe"),
    ("wipe", "{}", "no check_permissions"),
    ("read_lines", '{"file_path": "a.txt"}', "File path must be absolute"),
    ("read_lines", '{"limit": 1}', "file_path is missing"),
)
"""The first three succeed."""


@pytest.mark.requirement("CL-42", "CL-43", "CL-46", "SW-77", "SW-90", "TU-05", "TU-10", "TU-18")
async def test_an_executor_of_closures_takes_json_and_answers_with_text_or_an_error() -> None:
    registry = (
        ToolRegistry()
        .register("add", lambda given, _: sum(given["terms"]), is_read_only=True)
        .register("wipe", lambda given, _: "wiped")
        .register(FileReader())
        .register(searching())
    )
    for number, (name, given, says) in enumerate(CALLS):
        result = await registry.execute(name, given, CONTEXT)
        assert (result.error is None, says in result.text) == (number < 3, True), (name, given, result)
    misspelt: Any = {"is_readonly": True}
    refused = (("less", print, misspelt), ("less", None, {}), (made(), print, {}))
    for tool, run, declared in refused:
        with pytest.raises(lib.RegistrationError):
            registry.register(tool, run, **declared)


# --- DeepAgents: typed parameters, progress, state ----------------------------------------------------------

POINT = ToolParameter.object(
    ToolParameter.required("x", "double", "Across."), ToolParameter.optional("pin", "data", "Its picture.")
)
PARAMETERS = (
    ToolParameter.required("title", "string", "Of the map.", maxLength=5),
    ToolParameter.optional("zoom", "int", "How near."),
    ToolParameter.optional("shown", "bool", "Whether it opens."),
    ToolParameter.required("points", ToolParameter.array(POINT), "What it shows."),
)
GOOD: dict[str, Any] = {"title": "map", "points": [{"x": 1.5, "pin": "aGk="}]}
MISFITS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"title": "longer"}, "title must satisfy maxLength"),
    ({"zoom": [1]}, "zoom must satisfy type"),
    ({"points": [{"x": 1, "pin": "no!"}]}, "points.0.pin must be base64"),
    ({"points": [{"pin": "aGk="}]}, "points.0.x is missing"),
    ({"points": [{"x": 1, "y": 1}]}, "not known"),
)


class Pinned(BaseModel):
    pin: bytes


class Upload(BaseModel):
    content: bytes
    coded: Base64Bytes = b""
    pins: tuple[Pinned, ...] = ()
    named: dict[str, bytes] = {}


@pytest.mark.requirement("DA-35", "DA-36", "DA-37", "DA-38")
async def test_typed_parameters_make_the_schema_and_data_arrives_as_bytes(tmp_path: Path) -> None:
    got: list[Any] = []
    keep: Any = lambda given, _: got.append(given)  # noqa: E731
    tool = lib.define_tool("draw", "Draw.", keep, PARAMETERS, is_read_only=True)
    schema: Any = tool.input_schema
    assert (schema["required"], schema["additionalProperties"]) == (["title", "points"], False)
    point = schema["properties"]["points"]["items"]["properties"]
    assert point["pin"] == {"type": "string", "contentEncoding": "base64", "description": "Its picture."}
    server = served(tmp_path, tool)
    assert (await tool.execute(GOOD, CONTEXT)).error is (await call(server, "draw", **GOOD)).error is None
    assert got == [{"title": "map", "points": [{"x": 1.5, "pin": b"hi"}]}] * 2
    for change, says in MISFITS:
        assert says in (await tool.execute({**GOOD, **change}, CONTEXT)).text
        assert says in (await call(server, "draw", **GOOD | change)).text
    with pytest.raises(lib.RegistrationError, match="takes neither bytes"):
        lib.define_tool("t", "d", keep, create_model("Strict", __base__=Args, pin=(bytes, ...)))
    with pytest.raises(lib.RegistrationError, match="choose from string, bool"):
        ToolParameter.required("x", "number", "A number.")
    upload = lib.define_tool("upload", "Upload.", keep, Upload, is_read_only=True)
    schema = upload.input_schema
    assert schema["properties"]["content"] == {"type": "string", "contentEncoding": "base64"}
    sent = {"content": "aGk=", "coded": "aGk=", "pins": [{"pin": "aGk="}], "named": {"a": "aGk="}}
    assert (await upload.execute(sent, CONTEXT)).error is None
    pins = [pinned.pin for pinned in got[-1].pins]
    assert (got[-1].content, got[-1].coded, pins, got[-1].named) == (b"hi", b"hi", [b"hi"], {"a": b"hi"})
    assert "content must be base64" in (await upload.execute({"content": "?"}, CONTEXT)).text


async def count(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Counts its calls in the state, and shows a picture; fails at will."""
    await context.report(f"call {context.call_id}")
    state: Any = context.state
    seen = state.get("seen", 0) + 1
    # It is a copy.
    state["spoilt"] = True
    return ToolResult(
        output=f"seen {seen}",
        error="as you wish" if given.get("fails") else None,
        images=(DOT,),
        resources=(lib.ResourceLink(uri="file:///map.svg", name="map"),),
        state_update={"seen": seen},
    )


FAILS: dict[str, Any] = {"type": "object", "properties": {"fails": {}}}
COUNTING = lib.define_tool("count", "Count.", count, FAILS, is_read_only=True)
LINK = "[resource map: file:///map.svg]"


@pytest.mark.requirement("SW-45", "SW-46", "SW-47", "SW-49", "DA-41", "TU-08", "TU-09")
async def test_nothing_that_a_function_gives_is_lost_in_a_result() -> None:
    heard: list[str] = []

    async def hear(message: str) -> None:
        heard.append(message)

    context = ToolContext(working_directory="/", session_id="1", call_id="c", state={"seen": 4}, report=hear)
    result = await ToolRegistry().register(COUNTING).execute("count", {}, context)
    assert (result.output, result.text) == ("seen 5", f"seen 5\n{LINK}")
    assert (result.images, heard, result.state_update) == ((DOT,), ["call c"], {"seen": 5})
    text: Any = "x"
    assert ToolResult(output=1, images=(lib.Image(data=text, mime_type="image/png"),)).images[0].data == b"x"
    for value in (ToolContext(working_directory="/", session_id="1"), ToolResult(output=1)):
        with pytest.raises(ValueError, match="frozen"):
            setattr(value, next(iter(type(value).model_fields)), "x")
    with pytest.raises(ValueError, match="scheme"):
        lib.ResourceLink(uri="map.svg")


# --- the tutorial: the loop ---------------------------------------------------------------------------------


def anthropic(number: int, name: str, **given: Any) -> Any:
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}


def openai(number: int, name: str, **given: Any) -> Any:
    return {"type": "function_call", "call_id": f"t{number}", "name": name, "arguments": json.dumps(given)}


@pytest.mark.requirement("TU-23", "TU-12", "TU-13", "DA-42", "SW-45", "SW-90")
async def test_a_step_of_the_loop_answers_every_call_in_the_form_of_its_api() -> None:
    registry = ToolRegistry().register(COUNTING)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT_TEXT}}
    shown = {"type": "input_image", "image_url": f"data:image/png;base64,{DOT_TEXT}", "detail": "auto"}
    forms: tuple[tuple[Any, Any, str, str], ...] = (
        (anthropic, ToolResultBlockParam, "content", ""),
        (openai, FunctionCallOutput, "output", "Error: "),
    )
    for form, of_client, where, mark in forms:
        answer = [form(0, "count"), form(1, "count", fails=True), form(2, "count"), form(3, "none")]
        if form is anthropic:
            answer[0] = ToolUseBlock.model_validate(answer[0])
        results, context = await answer_with(registry, [{"type": "text", "text": "I look."}, *answer])
        assert (context.state, CONTEXT.state) == ({"seen": 2}, {})
        kind, image = ("text", picture) if form is anthropic else ("input_text", shown)
        for number, text in enumerate(("seen 1", f"{mark}as you wish", "seen 2")):
            assert results[number][where] == [{"type": kind, "text": f"{text}\n{LINK}"}, image]
        assert results[3][where].startswith(f"{mark}Unknown tool: none")
        assert [result.get("is_error", False) for result in results] == [False, not mark, False, not mark]
        ids = [result.get("tool_use_id", result.get("call_id")) for result in results]
        assert ids == ["t0", "t1", "t2", "t3"]
        assert all(TypeAdapter(of_client).validate_python(result) for result in results)
    assert await answer_with(registry, [{"type": "text", "text": "Done."}]) == ([], CONTEXT)


async def answer_with(registry: ToolRegistry, answer: Any) -> tuple[Any, ToolContext]:
    with anyio.fail_after(20):
        return await lib.answer_calls(registry, answer, CONTEXT)


@pytest.mark.requirement("TU-23", "SW-41", "TU-07")
async def test_reads_of_a_step_run_together_and_changes_alone_in_their_turn() -> None:
    running, order, met = set[str](), list[str](), anyio.Event()

    async def meet(given: dict[str, Any], context: ToolContext) -> str:
        running.add(context.call_id)
        order.append("read")
        if len(running) == 2:
            met.set()
        await met.wait()
        running.discard(context.call_id)
        return context.call_id

    def change(given: dict[str, Any], context: ToolContext) -> str:
        order.append(f"change with {len(running)}")
        return context.call_id

    registry = ToolRegistry().register("look", meet, is_read_only=True, is_concurrency_safe=True)
    registry = registry.register("change", change, check_permissions=lambda *_: True)
    names = ("look", "look", "change", "change", "look")
    results, _ = await answer_with(registry, [anthropic(number, name) for number, name in enumerate(names)])
    assert order == ["read", "read", "change with 0", "change with 0", "read"]
    assert [(one["tool_use_id"], one["content"]) for one in results] == [(f"t{n}", f"t{n}") for n in range(5)]
