"""ToolSearch finds what is not listed, and CallTool calls it as if it were called by its name."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import InputRequired, Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.protocol import translate
from mcp_toolserver.tool import WorkspacePath
from mcp_toolserver.tool_spec import Args, Image, Output, Record, Runtime
from tests.stores.test_audit import lines, opened, recorded
from tests.support.workbench import Person, dispatcher, machine, required, tool

EVERYTHING = required(*Capability)
REGISTRY = Registry(discover())
CORE = REGISTRY.select(["lean"], [], [])


def lean(folder: Path, **options: Any) -> Dispatcher:
    """A host that has everything; only the core tools are listed."""
    made = dispatcher(machine(folder, EVERYTHING), **options)
    return replace(made, unlisted=REGISTRY.unlisted(["lean"], [], [], listed=CORE))


async def search(server: Dispatcher, query: str = "", **arguments: Any) -> Result:
    return await server.call("ToolSearch", {"query": query, **arguments}, Person())


def found(result: Result) -> list[str]:
    assert result.error is None, result.text
    return [json.loads(line)["name"] for line in result.text.splitlines() if line.startswith("{")]


SELECTED = {
    "select:git_status,WebFetch": ["git_status", "WebFetch"],
    "select: GIT-STATUS  webFetch": ["git_status", "WebFetch"],
    "SELECT:GitStatus": ["git_status"],
    "select:TodoWriteTool": ["TodoWrite"],
    "select:CallTool": ["CallTool"],
    "select:bash": ["bash"],
    "select:ls,list_dir": ["ls"],
}


async def test_select_gives_exactly_what_is_named(tmp_path: Path) -> None:
    server = lean(tmp_path)
    assert {query: found(await search(server, query)) for query in SELECTED} == SELECTED


async def test_a_name_that_is_none_is_said_and_hides_no_other(tmp_path: Path) -> None:
    result = await search(lean(tmp_path), "select:nope,ls")
    assert found(result) == ["ls"]
    assert result.text.startswith("No tool here is called nope.")


BEST = {
    "notebook": "NotebookEdit",
    "which commit changed a line": "git_blame",
    "fetch a web page": "WebFetch",
    "what time is it": "current_datetime",
    "arithmetic expression": "calculator",
    "todo list": "TodoWrite",
    "diff": "diff",
    "picture image": "view_image",
    # A rare word counts more than a common one, one in the name more, and the beginning of one less.
    "schedule a command": "CronCreate",
    "stop task": "TaskStop",
    "mac": "mdfind",
}


async def test_what_suits_the_words_best_comes_first(tmp_path: Path) -> None:
    server = lean(tmp_path)
    assert {query: found(await search(server, query))[0] for query in BEST} == BEST


async def test_a_required_word_is_in_every_tool_that_is_found(tmp_path: Path) -> None:
    server = lean(tmp_path)
    loose, strict = [found(await search(server, q, max_results=10)) for q in ("diff git", "+diff +git")]
    assert "git_log" in loose
    assert "git_diff" in strict
    assert set(strict) < set(loose)
    assert found(await search(server, "+status +unfindable")) == []


async def test_the_answer_holds_the_schema_that_the_call_is_checked_by(tmp_path: Path) -> None:
    (line,) = [x for x in (await search(lean(tmp_path), "select:git_log")).text.splitlines() if x[0] == "{"]
    found = json.loads(line)
    entry = REGISTRY.find("git_log")
    assert found["inputSchema"] == entry.spec.schema
    assert found["description"] == entry.spec.description
    assert found["permission"] == "read-only"


async def test_five_are_shown_unless_more_are_wanted_and_never_more_than_ten(tmp_path: Path) -> None:
    server = lean(tmp_path)
    five, ten = await search(server, "file"), await search(server, "file", max_results=10)
    assert (len(found(five)), len(found(ten))) == (5, 10)
    assert "more; ask more exactly" in five.text
    assert (await search(server, "file", max_results=11)).error == "invalid_input"
    selected = await search(server, "select:" + ",".join(name for name in REGISTRY.entries))
    assert len(found(selected)) == 10


async def test_nothing_found_is_an_answer(tmp_path: Path) -> None:
    result = await search(lean(tmp_path), "xylophone")
    assert (result.error, found(result)) == (None, [])
    assert "No tool found" in result.text


async def test_an_empty_query_names_everything_that_is_not_core(tmp_path: Path) -> None:
    result = await lean(tmp_path).call("tool_search", {}, Person())
    lines = result.text.splitlines()
    named = {name for line in lines[1:] for name in line.split(": ")[1].split(", ")}
    assert named == set(REGISTRY.entries) - CORE
    assert lines[0].startswith(f"{len(named)} tools")


async def test_what_cannot_be_called_cannot_be_found(tmp_path: Path) -> None:
    server = lean(
        tmp_path,
        ceiling=Permission.READ_ONLY,
        offered=set(REGISTRY.entries) - {"git_log"},
    )
    result = await search(server, "select:curl,mkdir,git_log,git_show")
    assert found(result) == ["git_show"]
    poor = replace(server, host=machine(tmp_path, {Capability.CATALOGUE: Permission.READ_ONLY}))
    assert found(await search(poor, "select:git_show")) == []


async def test_it_says_how_to_call_what_a_client_does_not_list(tmp_path: Path) -> None:
    assert "CallTool" in (await search(lean(tmp_path), "blame")).text
    without = lean(tmp_path, offered=set(REGISTRY.entries) - {"CallTool"})
    assert "CallTool" not in (await search(without, "blame")).text


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
