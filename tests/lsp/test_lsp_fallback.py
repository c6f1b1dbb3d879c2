"""What a search says of code when there is no language server, and that it says that it is one."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.lsp.languages import LspTool, lsp_tool
from tests.support.cases import rows
from tests.support.workbench import Person

PYTHON = '''\
class Shape:
    def area(self) -> int:
        return doubled(1)


def doubled(x):
    """Twice."""
    return 2 * x


LIMIT: int = 3
'''
C = """\
#define LIMIT 3
typedef struct point { int x; } point;
int doubled(int x) {
  return 2 * x;
}
"""
TYPESCRIPT = """\
export class Shape {
  area(x: number): number {
    if (x) {
      return 1
    }
  }
}
"""
FILES = {
    "a.py": PYTHON,
    "b.py": "from a import doubled\nprint(doubled(2))\nundoubled = 1\n",
    "c.c": C,
    "d.ts": TYPESCRIPT,
    "g.ts": "class Round extends Shape {}\n",
    "e.odd": "function odd\nodd\n",
    "sub/f.py": "import a\na.doubled(3)\n",
    "hidden.py": "def doubled(): ...\n",
}
DOUBLED = ["a.py:6:5: def doubled(x):"]


@pytest.fixture
async def at(tmp_path: Path, starting: Broker) -> AsyncGenerator[LspTool]:
    async with lsp_tool(tmp_path, starting, places=(), hides=lambda names: "hidden.py" in names) as made:
        for name, text in FILES.items():
            made.put(name, text)
        yield made


HOVER = ["a.py:6", "def doubled(x):", '    """Twice."""', "    return 2 * x", "", "", "LIMIT: int = 3"]


@pytest.mark.requirement("SW-70", "SW-71")
async def test_a_search_answers_and_says_so(at: LspTool) -> None:
    answers = rows(Path(__file__).with_name("fallback_answers.txt"), {})
    answers["hover"] = ['hover b.py {"query": "doubled"}', *HOVER]
    for name, (asked, *lines) in answers.items():
        operation, path, more = asked.split(" ", 2)
        *found, last = (await at.text(operation, path, **json.loads(more))).splitlines()
        assert [line for line in found if line[:1] != "["] == lines, name
        assert last.startswith(
            "[fallback: a text search, not a language server: comments and strings count, scopes and types "
            "do not. No "
        )


async def test_comments_and_strings_count(at: LspTool) -> None:
    at.put("c.py", '"""\ndef doubled():\n"""\n# doubled\n')
    found = await at.places("findReferences", "c.py", query="doubled")
    assert found[:2] == ["c.py:2:5: def doubled():", "c.py:4:3: # doubled"]
    assert await at.places("goToDefinition", "c.py", query="doubled") == [
        "c.py:2:5: def doubled():",
        *DOUBLED,
    ]


async def test_names_are_searched_as_they_are_and_a_line_is_one_reference(at: LspTool) -> None:
    at.put("b.py", "doubled(doubled(1))\nx = 'do.bled'\n")
    at.put("long.py", "#" * 5_000 + " doubled\n")
    found = await at.places("findReferences", "a.py", query="doubled")
    assert [place[:40] for place in found if place[:2] in ("b.", "lo")] == [
        "b.py:1:1: doubled(doubled(1))",
        f"long.py:1:1: [...] {'#' * 21}",
    ]
    assert await at.places("goToDefinition", "b.py", query="do.bled") == ["No definitions found."]
    at.put("b.py", "print(1)\n")
    assert await at.places("hover", "b.py", query="print") == ["No words on this found."]


async def test_long_answers_are_cut(at: LspTool) -> None:
    at.put("b.py", "doubled\n" * 100)
    result = await at.ask("findReferences", "a.py", query="doubled")
    assert "[50 of 103 references; 53 more]" in result.text
    assert result.saved_output is not None
    assert Path(result.saved_output.path).read_text(encoding="utf-8").count("b.py:") == 100


UNKNOWABLE: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("incomingCalls", "a.py", {"query": "doubled"}, "unavailable", "server for Python is installed"),
    ("diagnostics", "e.odd", {}, "unavailable", "No language server is known for files like 'e.odd'"),
    ("workspaceSymbol", ".", {}, "invalid_input", "give `query`"),
    ("goToDefinition", "a.py", {"line": 4, "character": 1}, "invalid_input", "There is no name"),
    ("documentSymbol", "hidden.py", {}, "denied", "hidden"),
]


async def test_what_a_search_cannot_know_is_an_error(at: LspTool) -> None:
    for operation, path, more, kind, words in UNKNOWABLE:
        result = await at.ask(operation, path, **more)
        assert result.error == kind, result.text
        assert words in result.text, result.text


async def test_without_a_search_either_only_the_file_itself_is_known(
    tmp_path: Path, starting: Broker
) -> None:
    async with lsp_tool(tmp_path, starting, places=(), searched=False) as at:
        at.put("a.py", FILES["a.py"])
        assert len(await at.places("documentSymbol", "a.py")) == 4
        for operation, path in (("goToDefinition", "a.py"), ("workspaceSymbol", ".")):
            result = await at.ask(operation, path, query="doubled")
            assert result.error == "unavailable"
            assert "the fallback, is unavailable too" in result.text


async def test_a_folder_without_a_known_language_has_no_server(at: LspTool) -> None:
    at.put("odd/x.odd", "function found\n")
    text = await at.text("workspaceSymbol", "odd", query="found")
    assert "No language server is installed for the files in 'odd'." in text


async def test_without_the_extra_the_search_says_what_to_install(
    tmp_path: Path, starting: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("mcp_toolserver.runtime.lsp.")]:
        if name.endswith((".requests", ".responses")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    async with lsp_tool(tmp_path, starting) as at:
        at.put("a.py", FILES["a.py"])
        text = await at.text("goToDefinition", "a.py", query="doubled")
        assert "a.py:6:5: def doubled(x):" in text
        assert "can install mcp-toolserver[lsp]" in text
        assert at.started == []


async def test_a_client_finds_only_what_lies_in_its_folders(at: LspTool) -> None:
    at.put("other/g.py", "def doubled(): ...\n")
    narrow = Person(works_in=[str(at.root / "sub"), str(at.root / "other")])
    asked = {"operation": "findReferences", "path": str(at.root / "other/g.py"), "query": "doubled"}
    result = await at.at.call("LSP", asked, narrow)
    assert result.error is None, result.text
    assert result.text.startswith(f"{at.root}/other/g.py:1:5: def doubled(): ...\n[1 reference]")
