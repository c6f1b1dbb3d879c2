"""ToolSearch: what is not listed is found, with all that is needed to call it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.text.tool_search import words
from tests.support.workbench import Person, dispatcher, machine, required

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
    # Every description holds these words.
    assert "No tool found" in (await search(lean(tmp_path), "the weather in it")).text
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


def test_names_and_sentences_fall_into_words() -> None:
    assert words("NotebookEdit") == ["notebook", "edit"]
    assert words("git_log") == ["git", "log"]
    assert words("HTTPServer v2") == ["http", "server", "v", "2"]
    assert words("notes, classes: pass") == ["note", "classe", "pass"]
    assert words("LSP") == ["lsp"]
    assert words("…") == []
