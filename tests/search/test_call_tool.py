"""CallTool: a call of it is a call of the other tool, in permission, rules, record and answer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import InputRequired, Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.protocol import translate
from mcp_toolserver.tool import WorkspacePath
from mcp_toolserver.tool_spec import Args, Image, Output, Record, Runtime
from tests.stores.test_audit import lines, opened, recorded
from tests.support.workbench import Person, dispatcher, machine, required, tool

CALL_TOOL = next(entry for entry in discover() if entry.spec.name == "CallTool")
READ, WRITE, DANGER = Permission


class Named(Args):
    path: WorkspacePath


class Found(Record):
    path: str


async def show(args: Named, _: Runtime) -> Output:
    return Output(f"saw {args.path}", data=Found(path=args.path), images=(Image(data=b"x", mime_type="a/b"),))


def probe(name: str = "probe", permission: Permission = READ) -> Any:
    return tool(show, Named, name=name, permission=permission, subjects=lambda args: (args.path,))


async def call(
    server: Dispatcher, name: str, arguments: Mapping[str, JsonValue], person: Person | None = None
) -> Result:
    with anyio.fail_after(10):
        return await server.call(name, arguments, person or Person())


async def through(server: Dispatcher, name: str, person: Person | None = None, /, **arguments: Any) -> Result:
    return await call(server, "CallTool", {"name": name, "arguments": arguments}, person)


def hints(server: Dispatcher) -> dict[str, bool | None]:
    (listed,) = [one for one in translate.tools(server) if one.name == "CallTool"]
    assert listed.annotations is not None
    return {
        "reads": listed.annotations.read_only_hint,
        "destroys": listed.annotations.destructive_hint,
        "repeats": listed.annotations.idempotent_hint,
        "reaches": listed.annotations.open_world_hint,
    }


async def test_the_answer_is_that_of_the_other_tool_in_every_part(tmp_path: Path) -> None:
    server = dispatcher(machine(tmp_path), CALL_TOOL, probe())
    direct, by_proxy = await call(server, "probe", {"path": "a"}), await through(server, "probe", path="./a")
    assert (by_proxy.text, by_proxy.data, by_proxy.images) == (direct.text, direct.data, direct.images)
    assert by_proxy.data == {"path": "a"}


async def test_aliases_and_text_that_holds_json_are_understood(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").write_text("hello\n", encoding="utf-8")
    server = dispatcher(machine(tmp_path))
    result = await call(server, "call_tool", {"name": "Read", "arguments": json.dumps({"file_path": "a"})})
    assert "hello" in result.text


async def test_above_the_ceiling_it_is_refused_as_the_other_tool_is(tmp_path: Path) -> None:
    server = dispatcher(machine(tmp_path), CALL_TOOL, probe(permission=WRITE), ceiling=READ)
    direct, by_proxy = await call(server, "probe", {"path": "a"}), await through(server, "probe", path="a")
    assert (by_proxy.error, by_proxy.text) == (direct.error, direct.text)
    assert by_proxy.error == "denied"


async def test_a_deny_rule_about_either_tool_refuses(tmp_path: Path) -> None:
    for rule in ("probe(secret/**)", "CallTool", "*", "CallTool(secret/*)"):
        server = dispatcher(machine(tmp_path), CALL_TOOL, probe(), deny=[rule])
        assert (await through(server, "probe", path="./secret//k")).error == "denied", rule
    # A rule about it leaves the other tool alone when that is called itself.
    server = dispatcher(machine(tmp_path), CALL_TOOL, probe(), deny=["CallTool"])
    assert (await call(server, "probe", {"path": "a"})).error is None


async def test_an_ask_rule_about_either_asks_once_and_about_the_other_tool(tmp_path: Path) -> None:
    for rule in ("probe", "CallTool", "*"):
        server = dispatcher(machine(tmp_path), CALL_TOOL, probe(), ask=[rule])
        yes, no = Person(says=True), Person()
        assert (await through(server, "probe", yes, path="a")).error is None
        assert (await through(server, "probe", no, path="a")).error == "denied"
        asked = [question.splitlines()[0] for question in (*yes.asked, *no.asked)]
        assert asked == 2 * ["Allow probe (read-only)?"], rule


async def test_it_asks_if_the_other_tool_must_whatever_it_is_allowed_itself(tmp_path: Path) -> None:
    entries = (CALL_TOOL, probe(), probe("writer", WRITE))
    server = dispatcher(machine(tmp_path), *entries, granted=READ, allow=["CallTool"])
    reads, writes = Person(), Person()
    assert (await through(server, "probe", reads, path="a")).error is None
    assert (await through(server, "writer", writes, path="a")).error == "denied"
    assert (len(reads.asked), len(writes.asked)) == (0, 1)


async def test_either_being_switched_off_refuses(tmp_path: Path) -> None:
    for off in ("probe", "CallTool"):
        server = dispatcher(machine(tmp_path), CALL_TOOL, probe(), offered={"probe", "CallTool"} - {off})
        result = await through(server, "probe", path="a")
        assert result.error == "denied"
        assert result.text.startswith(f"{off} is switched off")


async def test_what_cannot_be_called_is_an_error_that_says_why(tmp_path: Path) -> None:
    wrong = [
        ("CallTool", {"name": "probe"}, "invalid_input", "cannot call CallTool"),
        ("call_tool", {}, "invalid_input", "cannot call call_tool"),
        ("nope", {}, "not_found", "ToolSearch"),
        ("probe", {"no": 1}, "invalid_input", "probe cannot use"),
        ("probe", {"path": "../x"}, "denied", "root"),
    ]
    server = dispatcher(machine(tmp_path), CALL_TOOL, probe())
    for name, arguments, kind, says in wrong:
        result = await through(server, name, **arguments)
        assert result.error == kind, result.text
        assert says in result.text


async def test_the_record_names_the_other_tool_and_how_it_was_called(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    entries = (CALL_TOOL, probe(), probe("writer", WRITE))
    at = recorded(tmp_path, audit, *entries, ceiling=READ)
    await through(at, "probe", path="a")
    await through(at, "writer", path="a")
    await through(at, "nope")
    await through(at, "CallTool")
    audit.close()
    logged = [(one["name"], one["tool"], one["permission"], one["verdict"]) for one in lines(tmp_path)]
    assert logged == [
        ("CallTool", "probe", "read-only", "allowed"),
        ("CallTool", "writer", "workspace-write", "refused-ceiling"),
        ("CallTool", "CallTool", None, "unknown"),
        ("CallTool", "CallTool", None, "invalid"),
    ]


async def test_a_question_that_is_answered_later_stays_one(tmp_path: Path) -> None:
    class Later(Person):
        async def ask(self, question: str) -> bool:
            raise InputRequired

    server = dispatcher(machine(tmp_path), CALL_TOOL, probe(), ask=["probe"])
    assert (await through(server, "probe", Later(), path="a")).pending


def test_its_hints_are_the_worst_of_what_it_can_call(tmp_path: Path) -> None:
    permissions = {**required(*Capability), Capability.PROCESS: READ}
    everything = dispatcher(machine(tmp_path, permissions))
    assert hints(everything) == {"reads": False, "destroys": True, "repeats": False, "reaches": True}
    reading = dispatcher(machine(tmp_path), CALL_TOOL, probe(), probe("writer", WRITE), ceiling=READ)
    assert hints(reading) == {"reads": True, "destroys": False, "repeats": True, "reaches": False}
    networked = dispatcher(machine(tmp_path, permissions), ceiling=READ)
    assert hints(networked)["reads"] is False
    writing = dispatcher(machine(tmp_path), CALL_TOOL, probe(), probe("writer", WRITE), ceiling=DANGER)
    assert hints(writing) == {"reads": False, "destroys": True, "repeats": False, "reaches": False}
    alone = dispatcher(machine(tmp_path), CALL_TOOL)
    assert hints(alone)["reads"] is True


def test_its_level_is_the_dearest_that_it_can_come_to(tmp_path: Path) -> None:
    writing = dispatcher(machine(tmp_path), CALL_TOOL, probe("writer", WRITE), probe("dear", DANGER))
    assert writing.level(CALL_TOOL) is DANGER
    capped = dispatcher(
        machine(tmp_path), CALL_TOOL, probe("writer", WRITE), probe("dear", DANGER), ceiling=WRITE
    )
    assert capped.level(CALL_TOOL) is WRITE
