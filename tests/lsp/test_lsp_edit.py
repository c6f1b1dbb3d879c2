"""Changes by two real language servers: renames, code actions and formatting."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.lsp.languages import LspTool, language_broker, lsp_tool

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("lsp")]

EXAMPLE = {"operation": "rename", "path": "src/shop.py", "query": "total", "new_name": "total_price"}

FILES = {
    "py/pyproject.toml": "",
    "py/shapes.py": '"""Shapes."""\n\n\ndef doubled(x: float) -> float:\n    return x * 2  # doubled\n',
    "py/uses.py": 'from shapes import doubled\r\n\r\né, 𝒳 = "𝒳doubled", doubled(1.0)\r\n',
    "c/shapes.h": "#pragma once\nint doubled(int x);\n",
    "c/uses.cc": '#include "shapes.h"\nint doubled(int x) { return x  *2; }\nint y = doubled(2)\n',
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LspTool]:
    with language_broker() as started:
        folder = tmp_path_factory.mktemp("lsp-edit")
        async with lsp_tool(folder, started, deny=["lsp_edit(py/generated.py)"]) as made:
            unit = f'{{"directory": "{made.root}/c", "file": "uses.cc", "command": "c++ -c uses.cc"}}'
            made.put("c/compile_commands.json", f"[{unit}]")
            yield made


@pytest.fixture
def at(shared: LspTool) -> LspTool:
    put_back(shared)
    return shared


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
    "py/shapes.py": FILES["py/shapes.py"].replace("def doubled", "def twice"),
    "py/uses.py": 'from shapes import twice\r\n\r\né, 𝒳 = "𝒳doubled", twice(1.0)\r\n',
}
RENAMED_C = {
    "c/shapes.h": FILES["c/shapes.h"].replace("doubled", "twice"),
    "c/uses.cc": FILES["c/uses.cc"].replace("doubled", "twice"),
}


async def test_a_symbol_is_renamed_in_every_file(at: LspTool) -> None:
    symbols: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("py/shapes.py", {"query": "doubled"}, RENAMED_PY),
        ("py/uses.py", {"line": 3, "character": 20}, RENAMED_PY),
        ("c/uses.cc", {"line": 2, "query": "doubled"}, RENAMED_C),
    ]
    for path, more, after in symbols:
        put_back(at)
        text, files = await changed(at, "rename", path, new_name="twice", **more)
        assert files == after
        assert text.startswith("Done: rename doubled to twice, by ")
        assert text.count('(restore "') == len(after)
        for name in after:
            assert f"--- a/{name}\n+++ b/{name}\n" in text


async def test_a_renamed_symbol_is_known_to_the_next_question(at: LspTool) -> None:
    result = await at.edit("rename", "py/shapes.py", query="doubled", new_name="twice")
    assert set(result.sha256) == {"py/shapes.py", "py/uses.py"}
    assert len(await at.places("findReferences", "py/shapes.py", query="twice")) == 3
    await changed(at, "rename", "py/shapes.py", query="twice", new_name="doubled")
    assert content(at) == FILES


async def test_code_that_keeps_the_old_name_is_reported(at: LspTool) -> None:
    at.put("other/one.py", "# doubled\ndef doubled(): ...\n" + "doubled()\n" * 6)
    text, files = await changed(at, "rename", "py/shapes.py", query="doubled", new_name="twice")
    (at.root / "other/one.py").unlink()
    assert files == RENAMED_PY
    assert "the name doubled too and is not changed: other/one.py:1, " in text
    assert " and 3 more. " in text


async def test_when_one_file_cannot_be_written_or_a_rule_forbids_it_none_is(at: LspTool) -> None:
    (at.root / "py/uses.py").chmod(0o444)
    try:
        for preview in (False, True):
            result = await at.edit(
                "rename", "py/shapes.py", query="doubled", new_name="twice", preview=preview
            )
            assert (result.error is None) is preview
        assert content(at) == FILES
    finally:
        (at.root / "py/uses.py").chmod(0o644)
    at.put("py/generated.py", "from shapes import doubled\ndoubled(3.0)\n")
    result = await at.edit("rename", "py/shapes.py", query="doubled", new_name="twice")
    assert result.error == "denied"
    assert "would also touch 'py/generated.py'" in result.text
    assert content(at) == FILES


async def test_a_file_is_formatted(at: LspTool) -> None:
    text, files = await changed(at, "format", "c/uses.cc")
    assert files["c/uses.cc"].splitlines()[1] == "int doubled(int x) { return x * 2; }"
    assert "- c/uses.cc: " in text
    text, files = await changed(at, "format", "c/uses.cc")
    assert files == {}
    assert text.startswith("Nothing to change, says clangd: format c/uses.cc.")


async def test_code_actions_are_listed_and_one_is_applied(at: LspTool) -> None:
    text, files = await changed(at, "codeAction", "c/uses.cc", line=3)
    assert files == {}
    title = next(line for line in text.splitlines() if "insert ';'" in line).removeprefix("- ")
    title = title.removesuffix(" [quickfix]")
    text, files = await changed(at, "codeAction", "c/uses.cc", line=3, action=title)
    assert files == {"c/uses.cc": FILES["c/uses.cc"].replace("doubled(2)\n", "doubled(2);\n")}
    assert text.startswith(f"Done: {title}, by clangd. Changed 1 file.")


async def test_a_refactoring_that_a_command_computes_is_applied(at: LspTool) -> None:
    at.put("c/auto.cc", "int f();\nauto z = f();\n")
    text = (await at.edit("codeAction", "c/auto.cc", line=2, query="auto")).text
    title = text.splitlines()[0].removeprefix("- ").removesuffix(" [refactor]")
    result = await at.edit("codeAction", "c/auto.cc", line=2, query="auto", action=title)
    assert result.error is None, result.text
    assert (at.root / "c/auto.cc").read_text(encoding="utf-8") == "int f();\nint z = f();\n"


UNCHANGEABLE: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("rename", "py/shapes.py", {"query": "doubled"}, "invalid_input", "rename needs new_name"),
    ("rename", "py/shapes.py", {"query": "doubled", "new_name": "a b"}, "invalid_input", "new_name"),
    ("rename", "py/shapes.py", {"query": "none", "new_name": "a"}, "invalid_input", "is not in"),
    ("rename", "py/shapes.py", {"line": 3, "character": 1, "new_name": "a"}, "unavailable", ""),
    ("rename", "../none.py", {"query": "x", "new_name": "a"}, "denied", "outside"),
    ("format", "py/shapes.py", {}, "unavailable", "does not support format"),
    ("format", "py/pyproject.toml", {}, "unavailable", "format needs one; edit_file"),
    ("codeAction", "c/uses.cc", {"line": 99}, "invalid_input", "past the end"),
    ("codeAction", "c/uses.cc", {"line": 3, "action": "dance"}, "invalid_input", "There are: "),
    ("codeAction", "c/uses.cc", {"line": 1, "character": 1, "action": "x"}, "invalid_input", "There "),
]


async def test_what_cannot_be_changed_is_an_error(at: LspTool) -> None:
    for operation, path, more, kind, words in UNCHANGEABLE:
        result = await at.edit(operation, path, **more)
        assert result.error == kind, result.text
        assert words in result.text, result.text
    assert content(at) == FILES


async def test_a_preview_by_other_spellings_shows_the_diff_and_changes_nothing(at: LspTool) -> None:
    spelt = {"filePath": "py/shapes.py", "symbol": "doubled", "newName": "twice", "dry_run": True}
    text, files = await changed(at, "rename", **spelt)
    assert files == {}
    assert "would change 2 files. Nothing was changed." in text
    assert "-def doubled(x: float) -> float:\n+def twice(x: float) -> float:\n" in text
