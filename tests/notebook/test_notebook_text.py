"""Editing a notebook changes what it should and not a byte more, however the file is written."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

from mcp_toolserver.text.notebook.edit import CellType, Mode, edit
from mcp_toolserver.text.notebook.notebook import parsed
from tests.notebook.notebooks import made, plain

LAYOUTS: tuple[dict[str, Any], ...] = (
    *({"indent": 1, "ensure_ascii": False}, {"indent": 2, "sort_keys": True}, {"ensure_ascii": False}),
    *({"indent": "\t", "ensure_ascii": False}, {"indent": 4, "separators": (",", ": ")}),
    *({"separators": (",", ":")}, {}),
)
SOURCES = ("", "x = 1\n\n", "é\r\n\\u00e9", '"漢" \u2028')
TYPES: tuple[CellType | None, ...] = (None, "code", "markdown", "raw")
Change = tuple[Mode, str | int, str, CellType | None]


def notebooks() -> Iterator[dict[str, Any]]:
    """In a version with ids or without, with sources as text or as lines and keys in any order."""
    for minor, is_text in product((4, 5), (False, True)):
        notebook = plain(made(minor=minor))
        if is_text:
            notebook = dict(reversed(notebook.items()))
            notebook["cells"] = [
                dict(reversed({**cell, "source": joined(cell)}.items())) for cell in notebook["cells"]
            ]
        yield notebook


def edits(has_ids: bool) -> Iterator[Change]:
    """Those that a notebook of three cells allows."""
    for index, (kind, number) in enumerate(product(TYPES, range(4))):
        source = SOURCES[(index + number) % 4]
        yield "insert", number, source, kind
        if number < 3:
            cell = "abc"[number] if has_ids and index % 2 else number
            yield "replace", cell, source, kind
            yield "delete", cell, "", None


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


def test_an_edit_does_what_it_says_and_nothing_else() -> None:
    for index, (notebook, options, newline) in enumerate(product(notebooks(), LAYOUTS, ("\n", "\r\n"))):
        text = json.dumps(notebook, **options).replace("\n", newline)
        for change in islice(edits(notebook["nbformat_minor"] == 5), index % 9, None, 9):
            check(text, change, options, newline)


def check(text: str, change: Change, options: dict[str, Any], newline: str) -> None:
    done = edit(text, *change)
    mode, cell, source, _ = change
    number = done.number
    assert cell in (number, done.id)
    before, after = raw_cells(text), raw_cells(done.text)
    assert (before[0], before[2]) == (after[0], after[2])
    unchanged = before[1] if mode == "insert" else without(before[1], number)
    assert unchanged == (after[1] if mode == "delete" else without(after[1], number))
    if mode != "delete":
        new = json.loads(after[1][number])
        assert joined(new) == source
        assert type(new["source"]) is type(json.loads(before[1][0])["source"])
        assert new["cell_type"] == done.type
    if mode == "replace":
        check_replaced(json.loads(before[1][number]), json.loads(after[1][number]), same=done.text == text)
    lines = done.text.replace(newline, "\n")
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
            done = edit(text, mode, 1, "x" * (mode != "delete"))
            after = raw_cells(done.text)
            assert (before[0], before[2]) == (after[0], after[2])
            assert (after[1][0], after[1][-1]) == (before[1][0], before[1][-1])
            assert json.loads(done.text)
