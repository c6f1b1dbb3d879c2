"""Editing a notebook changes what it should and not a byte more, however the file is written."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.text.notebook.edit import CellEdit, CellType, Mode, edit
from mcp_toolserver.text.notebook.json_spans import elements
from mcp_toolserver.text.notebook.json_style import Layout
from mcp_toolserver.text.notebook.notebook import parsed
from tests.notebook.notebooks import made, plain

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SOURCE = st.lists(st.sampled_from(["x = 1\n", "\n", "é\r\n", "\\u00e9", '"', "漢", " \u2028 "])).map("".join)
OUTPUT = st.builds(lambda text: {"output_type": "stream", "name": "stdout", "text": text}, TEXT)
LAYOUTS = st.sampled_from(
    [
        {"indent": 1, "ensure_ascii": False},
        {"indent": 2, "sort_keys": True},
        {"indent": "\t", "ensure_ascii": False},
        {"indent": 4, "separators": (",", ": ")},
        {"separators": (",", ":")},
        {"ensure_ascii": False},
    ]
)


@st.composite
def cells(draw: st.DrawFn) -> dict[str, Any]:
    """A cell without its id."""
    kind = draw(st.sampled_from(["code", "markdown", "raw"]))
    cell: dict[str, Any] = {"cell_type": kind, "metadata": draw(st.dictionaries(TEXT, TEXT, max_size=2))}
    for reserved in ("name", "tags", "jupyter", "format", "collapsed", "scrolled"):
        cell["metadata"].pop(reserved, None)
    source = draw(SOURCE)
    cell["source"] = draw(st.sampled_from([source, source.splitlines(keepends=True)]))
    if kind == "code":
        cell |= {
            "outputs": draw(st.lists(OUTPUT, max_size=2)),
            "execution_count": draw(st.none() | st.just(4)),
        }
    elif draw(st.booleans()):
        cell["attachments"] = {"p": {"image/png": "AAAA"}}
    return {key: cell[key] for key in draw(st.permutations(sorted(cell)))}


@st.composite
def notebooks(draw: st.DrawFn) -> dict[str, Any]:
    """A valid notebook, in a version with ids or without."""
    found = draw(st.lists(cells(), max_size=5))
    minor = draw(st.sampled_from([4, 5]))
    if minor == 5:
        found = [{**cell, "id": f"id-{number}"} for number, cell in enumerate(found)]
    outer = {"cells": found, "metadata": {"x": draw(TEXT)}, "nbformat": 4, "nbformat_minor": minor}
    return {key: outer[key] for key in draw(st.permutations(sorted(outer)))}


@st.composite
def edits(draw: st.DrawFn, count: int, has_ids: bool) -> CellEdit:
    """An edit that a notebook of `count` cells allows."""
    modes: tuple[Mode, ...] = ("replace", "insert", "delete") if count else ("insert",)
    types: tuple[CellType | None, ...] = (None, "code", "markdown", "raw")
    mode = draw(st.sampled_from(modes))
    number = draw(st.integers(0, count if mode == "insert" else count - 1))
    kind = None if mode == "delete" else draw(st.sampled_from(types))
    source = "" if mode == "delete" else draw(SOURCE)
    if has_ids and mode != "insert" and draw(st.booleans()):
        return CellEdit(mode=mode, id=f"id-{number}", source=source, type=kind)
    return CellEdit(mode=mode, number=number, source=source, type=kind)


def raw_cells(text: str) -> tuple[str, list[str], str]:
    """The file before its list of cells, the text of each, and the file after."""
    notebook = parsed(text)
    found = [text[cell.start : cell.end] for cell in notebook.cells]
    return text[: notebook.array.start], found, text[notebook.array.end :]


def without(items: Sequence[Any], number: int) -> list[Any]:
    return [*items[:number], *items[number + 1 :]]


def joined(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def check_replaced(old: dict[str, Any], new: dict[str, Any], *, same: bool) -> None:
    assert new["metadata"] == old["metadata"]
    assert new.get("id") == old.get("id")
    if (joined(new), new["cell_type"]) == (joined(old), old["cell_type"]):
        assert same
    elif new["cell_type"] == "code":
        assert (new["outputs"], new["execution_count"]) == ([], None)


@settings(deadline=None, max_examples=60)
@given(st.data(), notebooks(), LAYOUTS, st.booleans())
def test_an_edit_does_what_it_says_and_nothing_else(
    data: st.DataObject, notebook: dict[str, Any], options: dict[str, Any], crlf: bool
) -> None:
    text = json.dumps(notebook, **options)
    text = text.replace("\n", "\r\n") if crlf else text
    change = data.draw(edits(len(notebook["cells"]), notebook["nbformat_minor"] == 5))

    done = edit(text, change)

    number = done.number
    assert number == change.number or done.id == change.id
    before, after = raw_cells(text), raw_cells(done.text)
    assert (before[0], before[2]) == (after[0], after[2])
    unchanged = before[1] if change.mode == "insert" else without(before[1], number)
    assert unchanged == (after[1] if change.mode == "delete" else without(after[1], number))
    if change.mode != "delete":
        new = json.loads(after[1][number])
        assert joined(new) == change.source
        assert new["cell_type"] == done.type
    if change.mode == "replace":
        check_replaced(json.loads(before[1][number]), json.loads(after[1][number]), same=done.text == text)
    lines = done.text.replace("\r\n", "\n") if crlf else done.text
    uniform = [
        json.dumps(json.loads(lines), **{**options, "ensure_ascii": escapes}) for escapes in (False, True)
    ]
    assert lines in uniform


def test_white_space_of_any_kind_is_kept() -> None:
    whole = json.dumps(plain(made()), indent=1)
    for outer, gap in product(("\n {} \n\n", "{}", "\t{}"), ("", "  ", "\n\n\t", " \r\n")):
        text = outer.replace("{}", whole)
        text = text.replace('"cells": [', f'"cells"{gap}:{gap}[{gap}').replace("},\n  {", f"}}{gap},{gap}{{")
        before = raw_cells(text)
        for mode in ("replace", "insert", "delete"):
            done = edit(text, CellEdit(mode=mode, number=1, source="x" * (mode != "delete")))
            after = raw_cells(done.text)
            assert (before[0], before[2]) == (after[0], after[2])
            assert (after[1][0], after[1][-1]) == (before[1][0], before[1][-1])
            assert json.loads(done.text)


def test_elements_lie_where_they_are_said_to_lie() -> None:
    text = ' [ 1 , "a]" ,\n[2, []],{} ]rest'
    parts, end = elements(text, 1)
    assert [text[part.start : part.end] for part in parts] == ["1", '"a]"', "[2, []]", "{}"]
    assert text[end:] == "rest"
    assert elements("[ ]", 0) == ([], 3)


def test_what_is_no_array_is_refused() -> None:
    for text in ("", "[", "[1", "[1 2]", "[1,]", "{}", "[,]"):
        with pytest.raises(ValueError, match=r"."):
            elements(text, 0)


def test_two_items_are_set_apart_as_the_text_does_it() -> None:
    for newline, between in (("\n", ",\n  "), ("", ", ")):
        layout = Layout(newline=newline, unit=" ", comma=", ", colon=": ", ascii=False)
        assert layout.between(1) == between
