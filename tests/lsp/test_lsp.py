"""The LSP tool with two real language servers, which stay warm over the tests."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from tests.lsp.languages import LspTool, language_broker, lsp_tool
from tests.support.cases import rows
from tests.support.workbench import Person

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("lsp")]

SHAPES_PY = '''\
"""Shapes."""


class Shape:
    """Something with an area."""

    def area(self) -> float:
        return 0.0


class Square(Shape):
    def area(self) -> float:
        return doubled(2.0)


def doubled(x: float) -> float:
    """Twice as much, é."""
    return x * 2
'''
USES_PY = """\
from shapes import Square, doubled


def main() -> None:
    é, 𝒳 = "𝒳𝒳", doubled(1.0)
    print(é, 𝒳, Square().area())
    doubled("no number")
"""
SHAPES_H = """\
#pragma once
struct Shape {
  virtual double area() const = 0;
};
double doubled(double x);
"""
SHAPES_CC = """\
#include "shapes.h"
struct Square : Shape {
  double area() const override { return doubled(2); }
};
double doubled(double x) { return x * 2; }
"""
USES_CC = """\
#include "shapes.h"
double total(const Shape &s) {
  const char *é = "𝒳𝒳"; double y = doubled(s.area());
  return é ? y : 0;
}
double wrong() { return "𝒳"; }
"""


def _commands(root: Path) -> str:
    files = ("shapes.cc", "uses.cc")
    each = (f'{{"directory": "{root}/c", "file": "{name}", "command": "c++ -c {name}"}}' for name in files)
    return f"[{', '.join(each)}]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LspTool]:
    with language_broker() as started:
        async with lsp_tool(tmp_path_factory.mktemp("lsp"), started, hides=_hides) as made:
            made.put("py/pyproject.toml", "")
            made.put("py/shapes.py", SHAPES_PY)
            made.put("py/uses.py", USES_PY)
            made.put("py/hidden.py", "import shapes\nsecret = shapes.doubled(3.0)\n")
            made.put("py/peeks.py", "import hidden\nhidden.secret\n")
            made.put("c/shapes.h", SHAPES_H)
            made.put("c/shapes.cc", SHAPES_CC)
            made.put("c/uses.cc", USES_CC)
            made.put("c/compile_commands.json", _commands(made.root))
            yield made


def _hides(spellings: tuple[str, ...]) -> bool:
    return "py/hidden.py" in spellings


@pytest.mark.requirement("GR-71", "GR-73")
async def test_a_place_is_a_line_with_its_text(at: LspTool) -> None:
    wrong: dict[str, list[str]] = {}
    for name, (asked, *lines) in rows(Path(__file__).with_name("answers.txt"), {}).items():
        operation, path, more = asked.split(" ", 2)
        found = await at.places(operation, path, **json.loads(more))
        if (sorted(found) if "Calls" in operation else found) != lines:
            wrong[name] = found
    assert not wrong


async def test_a_hover_is_what_the_server_says(at: LspTool) -> None:
    text = await at.text("hover", "py/uses.py", query="doubled", line=5)
    assert "(x: float) -> float" in text
    assert "é." in text
    assert "double doubled(double x)" in await at.text("hover", "c/uses.cc", query="doubled", line=3)


@pytest.mark.requirement("GR-73")
async def test_problems_of_a_file_are_reported_whether_asked_for_or_pushed(at: LspTool) -> None:
    for path, place, words in (
        ("py/uses.py", "7:13", "not assignable"),
        ("c/uses.cc", "6:25", "Cannot initialize return object"),
    ):
        [line] = await at.places("diagnostics", path)
        assert line.startswith(f"{path}:{place}: [error] ")
        assert words in line
    assert await at.text("diagnostics", "c/shapes.cc") == "No problems found, says clangd."


async def test_an_answer_is_about_the_files_as_they_are_now(at: LspTool) -> None:
    before = (at.root / "py/uses.py").read_text(encoding="utf-8")
    shapes = (at.root / "py/shapes.py").read_text(encoding="utf-8")
    await at.text("diagnostics", "py/uses.py")
    at.put("py/shapes.py", f"{shapes}\n\ndef fresh() -> None: ...\n")
    at.put("py/uses.py", "# new\nfrom shapes import fresh\nfresh()\nfresh(1)\n")
    try:
        found = await at.places("findReferences", "py/shapes.py", query="fresh")
        assert "py/uses.py:4:1: fresh(1)" in found
        assert "py/uses.py:4:7:" in (await at.places("diagnostics", "py/uses.py"))[0]
    finally:
        at.put("py/uses.py", before)
        at.put("py/shapes.py", shapes)
    assert (await at.places("diagnostics", "py/uses.py"))[0].startswith("py/uses.py:7:13:")


async def test_a_header_that_changes_is_seen_by_who_includes_it(at: LspTool) -> None:
    before = (at.root / "c/shapes.h").read_text(encoding="utf-8")
    problems = await at.places("diagnostics", "c/uses.cc")
    assert len(problems) == 1
    # A change elsewhere leaves a problem where it was.
    other = at.put("c/other.cc", "int other() { return 0; }\n")
    assert await at.places("diagnostics", "c/uses.cc") == problems
    other.unlink()
    at.put("c/shapes.h", before.replace("double doubled(double x);", ""))
    try:
        found = await at.places("diagnostics", "c/uses.cc")
        assert any("undeclared identifier 'doubled'" in line for line in found), found
    finally:
        at.put("c/shapes.h", before)
    assert len(await at.places("diagnostics", "c/uses.cc")) == 1


async def test_a_file_that_comes_or_goes_is_noticed(at: LspTool) -> None:
    assert len(await at.places("findReferences", "py/shapes.py", query="doubled")) == 5
    new = at.put("py/more.py", "import shapes\nshapes.doubled(4.0)\n")
    found = await at.places("findReferences", "py/shapes.py", query="doubled")
    assert "py/more.py:2:8: shapes.doubled(4.0)" in found
    at.put("py/more.py", "import shapes\n\nshapes.doubled(4.0)\n")
    found = await at.places("findReferences", "py/shapes.py", query="doubled")
    assert "py/more.py:3:8: shapes.doubled(4.0)" in found
    new.unlink()
    assert len(await at.places("findReferences", "py/shapes.py", query="doubled")) == 5


async def test_places_outside_the_root_and_hidden_ones_are_left_out(at: LspTool) -> None:
    at.put("py/json_user.py", "import json\njson.dumps(1)\n")
    text = await at.text("goToDefinition", "py/json_user.py", line=2, query="dumps")
    assert "No definitions found inside the workspace" in text
    assert "left out: " in text
    assert "json/__init__" not in text
    text = await at.text("findReferences", "py/shapes.py", query="doubled")
    assert "[left out: 1 outside" in text
    assert "hidden.py" not in text
    (at.root / "py/json_user.py").unlink()


async def test_what_a_hidden_file_defines_is_not_described(at: LspTool) -> None:
    hidden = await at.ask("hover", "py/peeks.py", line=2, query="secret")
    assert hidden.error == "denied"
    assert "hides the file" in hidden.text
    asked = await at.ask("documentSymbol", "py/hidden.py")
    assert asked.error == "denied"


UNANSWERABLE: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("goToDefinition", "py/uses.py", {"line": 99, "character": 1}, "invalid_input", "which has 8 lines"),
    ("goToDefinition", "py/uses.py", {"line": 4, "character": 99}, "invalid_input", "which has 19 char"),
    ("goToDefinition", "py/uses.py", {"line": 4}, "invalid_input", "`character` too"),
    ("goToDefinition", "py/uses.py", {}, "invalid_input", "needs a place"),
    ("goToDefinition", "py/uses.py", {"line": 4, "query": "nobody"}, "invalid_input", "is not on line 4"),
    ("goToDefinition", "py/uses.py", {"query": "nobody"}, "invalid_input", "is not in 'py/uses.py'"),
    ("goToDefinition", "py/uses.py", {"line": 0, "character": 1}, "invalid_input", "line"),
    ("goToDefinition", "py", {"query": "x"}, "invalid_input", "is not a file"),
    ("goToDefinition", "py/none.py", {"query": "x"}, "not_found", "does not exist"),
    ("goToDefinition", "../none.py", {"query": "x"}, "denied", "outside"),
    ("goToImplementation", "py/uses.py", {"query": "doubled"}, "unavailable", "does not support"),
]


async def test_a_question_that_cannot_be_answered_is_an_error(at: LspTool) -> None:
    for operation, path, more, kind, words in UNANSWERABLE:
        result = await at.ask(operation, path, **more)
        assert result.error == kind, result.text
        assert words in result.text, result.text


SPELLINGS: list[tuple[dict[str, Any], str]] = [
    ({"action": "definition", "path": "py/uses.py", "line": 7, "character": 5}, "goToDefinition"),
    ({"operation": "definition", "file_path": "py/uses.py", "line": 7, "column": 5}, "goToDefinition"),
    ({"action": "references", "path": "py/shapes.py", "symbol": "doubled"}, "findReferences"),
    ({"action": "symbols", "path": "py/shapes.py"}, "documentSymbol"),
    ({"action": "symbols", "path": "py/shapes.py", "query": "doubled"}, "workspaceSymbol"),
]


async def test_other_spellings_mean_the_same(at: LspTool) -> None:
    places = {"goToDefinition": {"line": 7, "character": 5}, "documentSymbol": {}}
    for given, same_as in SPELLINGS:
        spelt = await at.at.call("lsp", given, Person())
        assert spelt.error is None, spelt.text
        own = {"path": given.get("path", "py/uses.py")}
        assert spelt.text == await at.text(same_as, **own, **places.get(same_as, {"query": "doubled"}))


async def test_many_questions_at_once_are_answered_by_one_server(at: LspTool) -> None:
    await at.text("documentSymbol", "py/shapes.py")
    started = len(at.started)
    found: list[str] = []

    async def ask() -> None:
        found.append(await at.text("goToDefinition", "py/uses.py", line=7, character=5))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(ask)
    assert len(set(found)) == 1
    assert len(at.started) == started
