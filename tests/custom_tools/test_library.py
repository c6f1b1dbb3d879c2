"""Tools of one's own, as those who extend other systems write them: made, called, chosen and shown."""

import json
import os
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field, JsonValue

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.custom_tools import (
    BuiltTool,
    InvalidInput,
    Permission,
    RegistrationError,
    Tool,
    ToolContext,
    ToolPool,
    ToolRegistry,
    ToolRestrictionStack,
    ToolResult,
    as_entry,
    assemble_tool_pool,
    build_tool,
    define_tool,
    filter_tools,
)
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.tool import WorkspacePath
from mcp_toolserver.tool_spec import Args, Image, Output
from tests.support.workbench import Person, dispatcher, machine, required

CONTEXT = ToolContext(working_directory="/tmp", session_id="session-001")
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
PATTERN: dict[str, Any] = {
    "type": "object",
    "properties": {"pattern": {"type": "string"}, "glob": {"type": "string"}},
    "required": ["pattern"],
}


async def look(payload: dict[str, Any], context: ToolContext) -> ToolResult:
    """What a reader of the tutorial writes as `my_search_impl`."""
    return ToolResult(output=f"{payload['pattern']} in {context.working_directory}")


def searching(**changes: Any) -> BuiltTool:
    """The tutorial's own usage, with changes."""
    return build_tool(
        {
            "name": "search_code",
            "description": "Search for a pattern across files.",
            "input_schema": PATTERN,
            "execute": look,
            "is_read_only": lambda: True,
            "is_concurrency_safe": lambda: True,
            **changes,
        }
    )


def made(name: str = "made", **declared: Any) -> BuiltTool:
    return define_tool(name, "A tool for a test.", lambda _: "done", **declared)


class FileReader:
    """A tool that is a class of its own, as the tutorial's reference implementation is."""

    name = "read_lines"
    description = "Read the contents of a file from disk."
    input_schema: Mapping[str, JsonValue] = {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["file_path"],
    }

    async def execute(self, payload: dict[str, Any], context: ToolContext) -> ToolResult:
        text = await anyio.Path(payload["file_path"]).read_text(encoding="utf-8")
        return ToolResult(output="".join(text.splitlines(keepends=True)[: payload.get("limit", 2000)]))

    async def check_permissions(self, payload: dict[str, Any], context: ToolContext) -> None:
        if not os.path.isabs(payload["file_path"]):
            raise PermissionError("File path must be absolute")
        if not payload["file_path"].startswith(context.working_directory):
            raise PermissionError("Path outside working directory")

    def is_read_only(self) -> bool:
        return True

    def is_concurrency_safe(self) -> bool:
        return True


def served(folder: Path, *tools: Tool, **options: Any) -> Dispatcher:
    permissions = {**required(*Capability), Capability.PROCESS: Permission.READ_ONLY}
    return dispatcher(machine(folder, permissions), *map(as_entry, tools), **options)


async def call(server: Dispatcher, name: str, **arguments: Any) -> Result:
    with anyio.fail_after(10):
        return await server.call(name, arguments, Person())


@pytest.mark.requirement("TU-01..TU-07", "TU-16", "SW-36", "SW-48")
async def test_the_tutorials_example_works_in_its_own_loop_and_in_the_server(tmp_path: Path) -> None:
    tool = ToolRegistry().register(searching()).get("search_code")
    await tool.check_permissions({"pattern": "x"}, CONTEXT)
    result = await tool.execute({"pattern": "x"}, CONTEXT)
    assert (result.output, result.error) == ("x in /tmp", None)
    assert result.duration_ms > 0
    assert (tool.is_read_only(), as_entry(tool).spec.serial) == (True, False)
    served_result = await call(served(tmp_path, tool), "search_code", pattern="y")
    assert served_result.text == f"y in {tmp_path}/root"


@pytest.mark.requirement("SW-36", "TU-05", "TU-14", "TU-15")
async def test_a_class_of_ones_own_is_a_tool_as_it_is(tmp_path: Path) -> None:
    server = served(tmp_path, FileReader())
    file = tmp_path / "root/a.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    assert (await call(server, "read_lines", file_path=str(file), limit=1)).text == "one\n"
    refused = await call(server, "read_lines", file_path="a.txt")
    assert (refused.error, refused.text) == ("denied", "File path must be absolute")
    assert (await call(server, "read_lines", file_path=str(tmp_path / "other"))).error == "denied"
    assert (await call(server, "read_lines", file_path=str(tmp_path / "root/none"))).error == "internal"


class Unsure(FileReader):
    def is_read_only(self) -> bool:
        raise OSError


@pytest.mark.requirement("TU-17", "SW-38")
async def test_what_a_tool_does_not_say_is_taken_for_the_worst() -> None:
    described = {"name": "t", "description": "Modes:\nfast\nslow\n"}
    tool = build_tool({**described, "input_schema": OBJECT, "execute": look})
    entry = as_entry(tool)
    assert entry.spec.description == "Modes:\nfast\nslow"
    assert (tool.is_read_only(), tool.is_concurrency_safe(), entry.spec.serial) == (False, False, True)
    assert entry.spec.own_permission is Permission.DANGER_FULL_ACCESS
    assert (entry.spec.destructive, entry.spec.idempotent) == (True, False)
    # Without a check of its own only a reading tool is permitted.
    await searching().check_permissions({"pattern": "x"}, CONTEXT)
    with pytest.raises(PermissionError, match="check_permissions"):
        await searching(is_read_only=False).check_permissions({"pattern": "x"}, CONTEXT)


def raising(error: BaseException) -> Any:
    def check(payload: object, context: object) -> None:
        raise error

    return check


CHECKS: tuple[tuple[Any, str], ...] = (
    (raising(PermissionError("not this one")), "not this one"),
    (raising(PermissionError(13, "secret detail")), "refuses"),
    (raising(ValueError("secret detail")), "could not check"),
    (raising(SystemExit()), "could not check"),
    (lambda payload, context: False, "refuses"),
    (lambda payload, context: "no", "refuses"),
)


@pytest.mark.requirement("TU-05")
async def test_a_check_that_does_anything_but_permit_refuses(tmp_path: Path) -> None:
    for check, says in CHECKS:
        tool = searching(check_permissions=check)
        with pytest.raises(PermissionError, match=says):
            await tool.check_permissions({"pattern": "x"}, CONTEXT)
        result = await call(served(tmp_path, tool), "search_code", pattern="x")
        assert (result.error, says in result.text) == ("denied", True)
        assert "secret" not in result.text

    async def permit(payload: dict[str, Any], context: ToolContext) -> bool:
        return payload["pattern"] == "x"

    server = served(tmp_path, searching(check_permissions=permit))
    assert (await call(server, "search_code", pattern="x")).error is None
    assert (await call(server, "search_code", pattern="y")).error == "denied"


ELSEWHERE: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1/x"}}},
    {"type": "object", "allOf": [{"$ref": "file:///etc/passwd"}]},
)
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"is_readonly": True}, "is_readonly is not known"),
    ({"name": "no spaces"}, "not a valid tool name"),
    ({"description": " "}, "characters"),
    ({"description": "d" * 2049}, "characters"),
    ({"execute": "look"}, "function"),
    ({"input_schema": {"type": "string"}}, "type object"),
    ({"input_schema": {**OBJECT, "required": "x"}}, "no JSON Schema"),
    *(({"input_schema": schema}, "outside itself") for schema in ELSEWHERE),
    ({"is_read_only": lambda: 1 / 0}, "failed"),
    ({"permission": "root"}, "read-only, workspace-write"),
    ({"permission": "workspace-write"}, "contradict"),
    ({"is_destructive": True}, "cannot be destructive"),
    ({"kind": "magic"}, "kind"),
    ({"check_permissions": True}, "function"),
    ({"deadline": 0}, "deadline"),
)


@pytest.mark.requirement("TU-18")
def test_a_wrong_definition_is_refused_when_it_is_made() -> None:
    for changes, says in WRONG:
        with pytest.raises(RegistrationError, match=says):
            searching(**changes)
    # A class is refused like a dictionary.
    with pytest.raises(RegistrationError, match=r"is_read_only\(\) failed"):
        as_entry(Unsure())
    definition = {"name": "t", "description": "d", "input_schema": OBJECT, "execute": look}
    for key in definition:
        with pytest.raises(RegistrationError, match=key):
            build_tool({name: value for name, value in definition.items() if name != key})


class City(BaseModel):
    name: str = Field(description="Which.", alias="city_name")
    days: int = Field(default=1, ge=1)


def forecast(city: City, _: ToolContext) -> str:
    return f"{city.name}: sun for {city.days} days"


async def graded(city: City, _: ToolContext) -> ToolResult:
    return ToolResult(output=None, error=f"no data for {city.name}")


def echo(payload: dict[str, JsonValue], _: ToolContext) -> dict[str, JsonValue]:
    return {"value": payload["value"]}


TEXT = define_tool("weather", "The weather.", forecast, City, is_read_only=True)
RESULT = define_tool("grade", "The grade.", graded, City, is_read_only=True)
NOTHING = define_tool("where", "Where it runs.", lambda context: context.working_directory, is_read_only=True)
RAW = define_tool(
    "echo", "Any value.", echo, {"type": "object", "properties": {"value": {}}}, is_read_only=True
)


@pytest.mark.requirement("SW-42", "SW-44", "SW-72", "SW-73", "SW-74", "SW-75", "SW-78")
async def test_typed_arguments_or_none_or_any_value_give_text_or_a_result(tmp_path: Path) -> None:
    server = served(tmp_path, TEXT, RESULT, NOTHING, RAW)
    payload: dict[str, JsonValue] = {"city_name": "Rome", "days": 2}
    assert (await TEXT.execute(payload, CONTEXT)).output == "Rome: sun for 2 days"
    assert (await call(server, "weather", **payload)).text == "Rome: sun for 2 days"
    assert (await RESULT.execute({"city_name": "Rome"}, CONTEXT)).error == "no data for Rome"
    result = await call(server, "grade", city_name="Rome")
    assert (result.error, result.text) == ("failed", "no data for Rome")
    assert (await NOTHING.execute({}, CONTEXT)).output == "/tmp"
    assert (await call(server, "where")).text == f"{tmp_path}/root"
    assert (await call(server, "where", x=1)).error == "invalid_input"
    for value in ("a", 1, 1.5, True, [1, "a"], {"b": None}):
        assert json.loads((await call(server, "echo", value=value)).text) == {"value": value}
    assert (await RAW.execute({"value": None}, CONTEXT)).output == {"value": None}


@pytest.mark.requirement("SW-77", "CL-43")
async def test_arguments_that_do_not_fit_are_an_error_that_does_not_repeat_them(tmp_path: Path) -> None:
    unfit: tuple[Any, ...] = (
        "text",
        {},
        {"city_name": "Rome", "days": "hunter2"},
        {"city_name": "Rome", "hunter2": 1},
    )
    for payload in unfit:
        result = await TEXT.execute(payload, CONTEXT)
        assert result.error is not None
        assert result.error.startswith("weather cannot use these arguments")
        assert "hunter2" not in result.error.replace("hunter2: Extra", "")
    # A schema is held to in the loop and in the server.
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"pattern": 5}, "pattern must satisfy type: string"),
        ({}, "pattern is missing"),
        ({"pattern": "x", "no": 1}, "an argument that is not known"),
    )
    for arguments, says in refusals:
        assert says in str((await searching().execute(arguments, CONTEXT)).error)
        refused = await call(served(tmp_path, searching()), "search_code", **arguments)
        assert (refused.error, says in refused.text) == ("invalid_input", True)


async def test_a_schema_that_allows_more_is_left_as_it_is() -> None:
    schema = {**PATTERN, "additionalProperties": True}
    # Its function is not async, but what it gives can be awaited.
    tool = searching(input_schema=schema, execute=lambda payload, context: look(payload, context))
    result = await tool.execute({"pattern": "x", "more": [{"a": 1}]}, CONTEXT)
    assert (result.output, result.error) == ("x in /tmp", None)
    nested = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": False}}}
    inner = searching(input_schema=nested)
    assert "a has an argument" in str((await inner.execute({"a": {"b": 1}}, CONTEXT)).error)


class Reason(Exception):
    """Of somebody's own."""


@pytest.mark.requirement("SW-77", "SW-90")
async def test_what_a_function_raises_becomes_a_result(tmp_path: Path) -> None:
    raised: tuple[tuple[BaseException, str, str], ...] = (
        (Reason("secret"), "Reason", "internal"),
        (SystemExit(3), "RuntimeError", "internal"),
        (InvalidInput("choose another"), "choose another", "invalid_input"),
    )
    for error, says, kind in raised:
        tool = searching(execute=raising(error))
        result = await tool.execute({"pattern": "x"}, CONTEXT)
        assert says in str(result.error)
        assert "secret" not in str(result.error)
        served_result = await call(served(tmp_path, tool), "search_code", pattern="x")
        assert served_result.error == kind
        assert "secret" not in served_result.text


async def test_an_output_is_reported_as_text_or_json_or_a_picture(tmp_path: Path) -> None:
    picture = Output("a dot", images=(Image(data=b"x", mime_type="image/png"),))
    outputs: tuple[tuple[object, str], ...] = (
        ("a", "a"),
        (None, ""),
        ([1], "[1]"),
        (City(city_name="Rome"), '{"city_name":"Rome","days":1}'),
        (picture, "a dot"),
    )
    for output, text in outputs:
        tool = searching(execute=lambda payload, context, output=output: output)
        result = await call(served(tmp_path, tool), "search_code", pattern="x")
        assert (result.error, result.text) == (None, text)
        assert result.images == (picture.images if output is picture else ())
        assert (await tool.execute({"pattern": "x"}, CONTEXT)).images == result.images
    unsayable = searching(execute=lambda payload, context: object())
    assert (await unsayable.execute({"pattern": "x"}, CONTEXT)).error is not None
    assert (await call(served(tmp_path, unsayable), "search_code", pattern="x")).error == "internal"


class Named(Args):
    path: WorkspacePath


async def test_a_path_of_the_servers_kind_is_checked_before_the_function_sees_it(tmp_path: Path) -> None:
    tool = define_tool("named", "Name a file.", lambda args, _: args.path, Named, is_read_only=True)
    server = served(tmp_path, tool, deny=["named(secret/**)"])
    assert (await call(server, "named", path="./a//b")).text == "a/b"
    assert (await call(server, "named", path="../x")).error == "denied"
    assert (await call(server, "named", path="./secret//k")).error == "denied"


@pytest.mark.requirement("SW-39", "SW-89")
async def test_it_runs_where_the_mode_allows_what_it_declares_and_as_long_as_it_says(tmp_path: Path) -> None:
    for permission, ceiling in product(Permission, Permission):
        server = served(tmp_path, made(permission=permission), ceiling=ceiling)
        assert (await call(server, "made")).error == (None if permission <= ceiling else "denied")
        assert bool(server.listed()) == (permission <= ceiling)
    reading = served(tmp_path, made(is_read_only=True))
    assert (await reading.call("made", {}, Person(works_in=()))).error == "denied"
    limits = [as_entry(made(deadline=seconds)).spec for seconds in (60.0, 61.0)]
    assert [(spec.limits.deadline, spec.may_be_long) for spec in limits] == [(60.0, False), (61.0, True)]


class Shortened(BaseModel):
    path: str = Field(exclude=True)


async def test_rules_match_every_text_in_its_arguments_as_it_was_sent(tmp_path: Path) -> None:
    tool = searching(input_schema={"type": "object", "properties": {"pattern": {}}})
    server = served(tmp_path, tool, deny=["search_code(secret*)"])
    assert (await call(server, "search_code", pattern={"a": ["x", "secrets"]})).error == "denied"
    assert (await call(server, "search_code", pattern={"a": ["x", 5]})).error is None
    # The model drops this one.
    tool = define_tool("open_it", "Open it.", lambda args, _: args.path, Shortened, is_read_only=True)
    server = served(tmp_path, tool, deny=["open_it(secret*)"])
    assert (await call(server, "open_it", path="secrets")).error == "denied"
    assert (await call(server, "open_it", path="other")).text == "other"


@pytest.mark.requirement("TU-10", "TU-11")
def test_registering_gives_a_new_registry_in_which_each_name_is_known_once() -> None:
    empty = ToolRegistry()
    one = empty.register(searching())
    two = one.register(made())
    assert ([len(empty), len(one), len(two)], "made" in one, "made" in two) == ([0, 1, 2], False, True)
    assert [tool.name for tool in two] == ["search_code", "made"]
    with pytest.raises(KeyError, match="Unknown tool: nope"):
        empty.get("nope")
    with pytest.raises(RegistrationError, match="search_code"):
        one.register(searching())


@pytest.mark.requirement("TU-12", "TU-13", "SW-38", "SW-86")
def test_every_form_tells_what_its_reader_expects() -> None:
    writing = made(permission="workspace-write", is_destructive=False, is_idempotent=True)
    registry = ToolRegistry().register(searching()).register(FileReader()).register(writing)
    described = {"name": "search_code", "description": "Search for a pattern across files."}
    assert registry.to_anthropic_tools()[0] == {**described, "input_schema": PATTERN}
    assert registry.to_openai_tools()[0] == {"type": "function", **described, "parameters": PATTERN}
    assert registry.to_acp_tools() == [
        {"name": name, "kind": "other"} for name in ("search_code", "read_lines", "made")
    ]
    listed = registry.to_mcp_tools()
    assert listed[0]["inputSchema"] == {**PATTERN, "additionalProperties": False}
    hints = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True}
    assert listed[2]["annotations"] == hints


def names(pool: ToolPool) -> list[str]:
    return [tool.name for tool in pool]


def pool_of(*tool_names: str) -> list[Tool]:
    return [made(name) for name in tool_names]


@pytest.mark.requirement("TU-19", "TU-20", "TU-21", "SW-81")
def test_built_in_tools_come_first_each_source_by_name_without_what_is_denied() -> None:
    pool = assemble_tool_pool(pool_of("b", "a"), pool_of("d", "c"), {"C"}, custom=pool_of("f", "e"))
    assert names(pool) == ["a", "b", "e", "f", "d"]
    more = assemble_tool_pool(pool_of("b", "a"), pool_of("d", "aa"), (), custom=pool_of("f", "e"))
    assert names(more)[:4] == ["a", "b", "e", "f"]


@pytest.mark.requirement("TU-20", "SW-81")
def test_one_tool_wins_a_name_and_the_pool_says_so() -> None:
    sources = [pool_of("same", "x"), pool_of("same"), pool_of("Same")]
    precedences: tuple[tuple[Any, int], ...] = (("builtin", 0), ("latest", 2))
    for precedence, winner in precedences:
        pool = assemble_tool_pool(sources[0], sources[2], (), custom=sources[1], precedence=precedence)
        (kept,) = [tool for tool in pool if tool.name.lower() == "same"]
        assert kept is sources[winner][0]
        assert len(pool.diagnostics) == 2
    with pytest.raises(RegistrationError, match="same"):
        assemble_tool_pool(pool_of("same"), pool_of("same"), precedence="error")


@pytest.mark.requirement("SW-83")
def test_lists_choose_tools() -> None:
    lists: tuple[tuple[Any, Any, list[str]], ...] = (
        (None, None, ["a", "b", "c"]),
        ([], [], ["a", "b", "c"]),
        (["A", "b"], None, ["a", "b"]),
        (None, ["B"], ["a", "c"]),
        # Deny wins.
        (["a", "b"], ["b"], ["a"]),
    )
    for allowed, disallowed, left in lists:
        pool = filter_tools(pool_of("a", "b", "c"), allowed, disallowed)
        assert names(pool) == [tool.name for tool in pool[:]] == left
        assert pool.diagnostics == ()
    pool = filter_tools(pool_of("a"), ["z"])
    assert (len(pool), pool[:]) == (0, ())
    assert pool.diagnostics == ("no tool is called z", "no tool is left: the lists allow none of them")
    assert filter_tools(pool_of("a"), None, ["a"]).diagnostics[-1].startswith("no tool is left")


@pytest.mark.requirement("SW-84", "SW-85")
def test_an_inner_restriction_narrows_the_outer_one_or_takes_its_place_and_an_empty_one_allows_nothing() -> (
    None
):
    nestings: tuple[tuple[Any, list[str]], ...] = (("intersect", ["b"]), ("replace", ["b", "c"]))
    for nesting, inner in nestings:
        stack, tools = ToolRestrictionStack(nesting), pool_of("a", "b", "c")
        # Popping too often does nothing.
        stack.pop()
        assert (names(stack.filter(tools)), stack.allows("a")) == (["a", "b", "c"], True)
        for restriction, left in ((["A", "b"], ["a", "b"]), (["b", "c"], inner), ([], [])):
            stack.push(restriction)
            assert (names(stack.filter(tools)), stack.allows("a")) == (left, "a" in left)
        stack.pop()
        stack.pop()
        assert (names(stack.filter(tools)), len(stack)) == (["a", "b"], 1)
