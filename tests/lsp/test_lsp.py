"""The LSP tools with two real language servers, which stay warm over the tests."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from tests.lsp.languages import LspTool, language_broker, lsp_tool
from tests.support.cases import rows

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
    files = ("shapes.cc", "uses.cc", "calls.cc")
    each = (f'{{"directory": "{root}/c", "file": "{name}", "command": "c++ -c {name}"}}' for name in files)
    return f"[{', '.join(each)}]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LspTool]:
    with language_broker() as started:
        folder, deny = tmp_path_factory.mktemp("lsp"), ["lsp_edit(py/generated.py)"]
        async with lsp_tool(folder, started, hides=_hides, deny=deny) as made:
            made.put("py/pyproject.toml", "")
            made.put("py/shapes.py", SHAPES_PY)
            made.put("py/uses.py", USES_PY)
            made.put("py/hidden.py", "import shapes\nsecret = shapes.doubled(3.0)\n")
            made.put("py/peeks.py", "import hidden\nhidden.secret\n")
            made.put("c/shapes.h", SHAPES_H)
            made.put("c/shapes.cc", SHAPES_CC)
            made.put("c/uses.cc", USES_CC)
            made.put("c/compile_commands.json", _commands(made.root))
            # clangd reads once, at its start, what a header is used by.
            put_back(made)
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
    ("goToDefinition", "py/uses.py", {}, "invalid_input", "needs a place"),
    ("goToDefinition", "py/uses.py", {"query": "nobody"}, "invalid_input", "is not in 'py/uses.py'"),
    ("goToDefinition", "py/none.py", {"query": "x"}, "not_found", "does not exist"),
    ("goToDefinition", "../none.py", {"query": "x"}, "denied", "outside"),
    ("goToImplementation", "py/uses.py", {"query": "doubled"}, "unavailable", "does not support"),
]


async def test_a_question_that_cannot_be_answered_is_an_error(at: LspTool) -> None:
    for operation, path, more, kind, words in UNANSWERABLE:
        result = await at.ask(operation, path, **more)
        assert result.error == kind, result.text
        assert words in result.text, result.text


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


FILES = {
    "py/pyproject.toml": "",
    "py/figures.py": '"""Figures."""\n\n\ndef trebled(x: float) -> float:\n    return x * 2  # trebled\n',
    "py/calls.py": 'from figures import trebled\r\n\r\né, 𝒳 = "𝒳trebled", trebled(1.0)\r\n',
    "c/calls.h": "#pragma once\nint trebled(int x);\n",
    "c/calls.cc": '#include "calls.h"\nint trebled(int x) { return x  *2; }\nint y = trebled(2)\n',
}


@pytest.fixture
def code(at: LspTool) -> LspTool:
    """The same tool, with the files that are changed as they were."""
    put_back(at)
    return at


def put_back(at: LspTool) -> None:
    for name, text in FILES.items():
        at.put(name, "").write_bytes(text.encode())
    (at.root / "py/generated.py").unlink(missing_ok=True)


def content(at: LspTool) -> dict[str, str]:
    return {name: (at.root / name).read_bytes().decode() for name in FILES}


async def changed(at: LspTool, operation: str, path: str = "", **more: Any) -> tuple[str, dict[str, str]]:
    """The answer, and the files that differ afterwards."""
    before = content(at)
    result = await at.edit(operation, path, **more)
    assert result.error is None, result.text
    after = content(at)
    return result.text, {name: text for name, text in after.items() if text != before[name]}


RENAMED_PY = {
    "py/figures.py": FILES["py/figures.py"].replace("def trebled", "def twice"),
    "py/calls.py": 'from figures import twice\r\n\r\né, 𝒳 = "𝒳trebled", twice(1.0)\r\n',
}
RENAMED_C = {
    "c/calls.h": FILES["c/calls.h"].replace("trebled", "twice"),
    "c/calls.cc": FILES["c/calls.cc"].replace("trebled", "twice"),
}


async def test_a_symbol_is_renamed_in_every_file(code: LspTool) -> None:
    symbols: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("py/figures.py", {"query": "trebled"}, RENAMED_PY),
        ("py/calls.py", {"line": 3, "character": 20}, RENAMED_PY),
        ("c/calls.cc", {"line": 2, "query": "trebled"}, RENAMED_C),
    ]
    for path, more, after in symbols:
        put_back(code)
        text, files = await changed(code, "rename", path, new_name="twice", **more)
        assert files == after
        assert text.startswith("Done: rename trebled to twice, by ")
        assert text.count('(restore "') == len(after)
        for name in after:
            assert f"--- a/{name}\n+++ b/{name}\n" in text


async def test_a_renamed_symbol_is_known_to_the_next_question(code: LspTool) -> None:
    result = await code.edit("rename", "py/figures.py", query="trebled", new_name="twice")
    assert set(result.sha256) == {"py/figures.py", "py/calls.py"}
    assert len(await code.places("findReferences", "py/figures.py", query="twice")) == 3
    await changed(code, "rename", "py/figures.py", query="twice", new_name="trebled")
    assert content(code) == FILES


async def test_code_that_keeps_the_old_name_is_reported(code: LspTool) -> None:
    code.put("other/one.py", "# trebled\ndef trebled(): ...\n" + "trebled()\n" * 6)
    text, files = await changed(code, "rename", "py/figures.py", query="trebled", new_name="twice")
    (code.root / "other/one.py").unlink()
    assert files == RENAMED_PY
    assert "the name trebled too and is not changed: other/one.py:1, " in text
    assert " and 3 more. " in text


async def test_when_one_file_cannot_be_written_or_a_rule_forbids_it_none_is(code: LspTool) -> None:
    (code.root / "py/calls.py").chmod(0o444)
    try:
        for preview in (False, True):
            result = await code.edit(
                "rename", "py/figures.py", query="trebled", new_name="twice", preview=preview
            )
            assert (result.error is None) is preview
        assert content(code) == FILES
    finally:
        (code.root / "py/calls.py").chmod(0o644)
    code.put("py/generated.py", "from figures import trebled\ntrebled(3.0)\n")
    result = await code.edit("rename", "py/figures.py", query="trebled", new_name="twice")
    assert result.error == "denied"
    assert "would also touch 'py/generated.py'" in result.text
    assert content(code) == FILES


async def test_a_file_is_formatted(code: LspTool) -> None:
    text, files = await changed(code, "format", "c/calls.cc")
    assert files["c/calls.cc"].splitlines()[1] == "int trebled(int x) { return x * 2; }"
    assert "- c/calls.cc: " in text
    text, files = await changed(code, "format", "c/calls.cc")
    assert files == {}
    assert text.startswith("Nothing to change, says clangd: format c/calls.cc.")


async def test_code_actions_are_listed_and_one_is_applied(code: LspTool) -> None:
    text, files = await changed(code, "codeAction", "c/calls.cc", line=3)
    assert files == {}
    title = next(line for line in text.splitlines() if "insert ';'" in line).removeprefix("- ")
    title = title.removesuffix(" [quickfix]")
    text, files = await changed(code, "codeAction", "c/calls.cc", line=3, action=title)
    assert files == {"c/calls.cc": FILES["c/calls.cc"].replace("trebled(2)\n", "trebled(2);\n")}
    assert text.startswith(f"Done: {title}, by clangd. Changed 1 file.")


UNCHANGEABLE: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("rename", "py/figures.py", {"query": "trebled"}, "invalid_input", "rename needs new_name"),
    ("rename", "py/figures.py", {"line": 3, "character": 1, "new_name": "a"}, "unavailable", ""),
    ("rename", "../none.py", {"query": "x", "new_name": "a"}, "denied", "outside"),
    ("format", "py/figures.py", {}, "unavailable", "does not support format"),
    ("format", "py/pyproject.toml", {}, "unavailable", "format needs one; edit_file"),
    ("codeAction", "c/calls.cc", {"line": 99}, "invalid_input", "past the end"),
    ("codeAction", "c/calls.cc", {"line": 3, "action": "dance"}, "invalid_input", "There are: "),
]


async def test_what_cannot_be_changed_is_an_error(code: LspTool) -> None:
    for operation, path, more, kind, words in UNCHANGEABLE:
        result = await code.edit(operation, path, **more)
        assert result.error == kind, result.text
        assert words in result.text, result.text
    assert content(code) == FILES


async def test_a_preview_by_other_spellings_shows_the_diff_and_changes_nothing(code: LspTool) -> None:
    spelt = {"filePath": "py/figures.py", "symbol": "trebled", "newName": "twice", "dry_run": True}
    text, files = await changed(code, "rename", **spelt)
    assert files == {}
    assert "would change 2 files. Nothing was changed." in text
    assert "-def trebled(x: float) -> float:\n+def twice(x: float) -> float:\n" in text
