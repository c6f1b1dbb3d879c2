"""Edits one cell of a notebook. The rest of the file stays identical, byte for byte."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from pydantic import JsonValue

from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.text.notebook.notebook import (
    Layout,
    Notebook,
    Part,
    Splice,
    fields,
    layout,
    parsed,
    parts,
    source_of,
    spliced,
)

CellType = Literal["code", "markdown", "raw"]
Mode = Literal["replace", "insert", "delete"]

_CELL_LEVEL = 2
"""Nesting level of a cell in the file."""

_ONLY_IN_CODE: Mapping[str, str] = {"execution_count": "null", "outputs": "[]"}
_NOT_IN_CODE = frozenset({"attachments"})


@dataclass(frozen=True, kw_only=True)
class EditedNotebook:
    """A notebook after a change of one cell."""

    text: str
    number: int
    """Of the cell, from 0; of a deleted one, what it was."""
    id: str
    """Empty where cells have none."""
    type: str
    before: str
    """Source of the cell; empty for a new one."""
    after: str
    """Empty for a deleted one."""
    old_type: str
    cleared: int
    """Outputs that were cleared because the source is another now."""
    detached: bool
    """Whether attachments were dropped, which code cells cannot have."""
    cells: int
    """Cells in the notebook."""


def edit(
    text: str, mode: Mode, cell: str | int | None, source: str = "", cell_type: CellType | None = None
) -> EditedNotebook:
    """Edit the cell with an id, or with a number from 0, in the notebook in `text`.

    A new cell goes after the one with the id, or gets the number; without either it is the last.

    Raises:
        InvalidInput: it is no valid notebook, or would be none, or the cell is not named rightly.
        NotFound: it has no such cell.
    """
    notebook = parsed(text)
    is_new = mode == "insert"
    number = _place(notebook, cell, is_new=is_new)
    old: Mapping[str, JsonValue] = {} if is_new else fields(notebook.cells[number])
    new_type = cell_type or str(old.get("cell_type", "code"))
    made: Mapping[str, JsonValue] = _made(notebook, new_type) if is_new else {}
    match mode:
        case "insert":
            splices = [_inserted(notebook, number, made, source)]
        case "delete":
            splices = [_deleted(notebook, number)]
        case "replace":
            splices = _replaced(notebook, number, new_type, source)
    after = spliced(text, splices)
    if after != text:
        try:
            parsed(after)
        except InvalidInput as error:
            raise InvalidInput(f"was not changed, because the result {error}") from None
    id_, outputs = made.get("id") or old.get("id"), old.get("outputs")
    return EditedNotebook(
        text=after,
        number=number,
        id=id_ if isinstance(id_, str) else "",
        type=new_type,
        before=source_of(old),
        after="" if mode == "delete" else source,
        old_type=str(old.get("cell_type", "")),
        cleared=len(outputs) if after != text and isinstance(outputs, list) else 0,
        detached=mode == "replace" and new_type == "code" and "attachments" in old,
        cells=len(notebook.cells) + {"insert": 1, "delete": -1, "replace": 0}[mode],
    )


def _place(notebook: Notebook, cell: str | int | None, *, is_new: bool) -> int:
    """Return the number of the cell, or the number that a new one gets."""
    count = len(notebook.cells)
    if isinstance(cell, str):
        if not notebook.has_ids:
            raise NotFound(f"has nbformat 4.{notebook.minor}, where cells have no ids; give cell_number")
        if cell not in (ids := notebook.ids()):
            raise NotFound("has no cell with this cell_id; read_file shows the ids that there are")
        return ids.index(cell) + is_new
    number = count if cell is None else cell
    if number >= count + is_new:
        raise NotFound(
            f"has {count} cells, counted from 0, and so no place for number {number}; give a lower one"
        )
    return number


def _replaced(notebook: Notebook, number: int, new_type: str, new_source: str) -> list[Splice]:
    cell = notebook.cells[number]
    before = fields(cell)
    style = layout(notebook.text, cell.start, _CELL_LEVEL)
    source = _source(style, new_source, like=before)
    if new_type != before["cell_type"]:
        return [(cell.start, cell.end, _converted(notebook, cell, style, new_type, source))]
    if source_of(before) == new_source:
        return []
    new = {"source": source, **_ONLY_IN_CODE}
    found, _ = parts(notebook.text, cell.start)
    return [(part.start, part.end, new[key]) for key, part in found.items() if key in new]


def _inserted(notebook: Notebook, number: int, made: Mapping[str, JsonValue], new_source: str) -> Splice:
    cells, array = notebook.cells, notebook.array
    model = _model(cells, number, str(made["cell_type"]))
    start, level = (model.start, _CELL_LEVEL) if model else (notebook.start, 0)
    style = layout(notebook.text, start, level)
    values = {key: style.written(value, _CELL_LEVEL + 1) for key, value in made.items()}
    values["source"] = _source(style, new_source, like=fields(model) if model else made)
    cell = _composed(style, list(fields(model)) if model else [], values)
    if not cells:
        return array.start, array.end, style.enclosed(cell, _CELL_LEVEL - 1)
    first, second = cells[0].end, cells[1].start if len(cells) > 1 else 0
    comma = notebook.text[first:second] or style.between(_CELL_LEVEL - 1)
    if number < len(cells):
        return cells[number].start, cells[number].start, cell + comma
    return cells[-1].end, cells[-1].end, comma + cell


def _deleted(notebook: Notebook, number: int) -> Splice:
    cells, array = notebook.cells, notebook.array
    if len(cells) == 1:
        return array.start, array.end, "[]"
    if number + 1 < len(cells):
        return cells[number].start, cells[number + 1].start, ""
    return cells[number - 1].end, cells[number].end, ""


def _source(style: Layout, source: str, *, like: Mapping[str, JsonValue]) -> str:
    """Write the source as JSON: one string, or one per line, as the other cell has it."""
    lines: list[JsonValue] = [*source.splitlines(keepends=True)]
    return style.written(source if isinstance(like["source"], str) else lines, _CELL_LEVEL + 1)


def _converted(notebook: Notebook, cell: Part, style: Layout, new_type: str, source: str) -> str:
    """Convert a cell to another type; fields that both types have stay."""
    found, _ = parts(notebook.text, cell.start)
    kept = {key: notebook.text[part.start : part.end] for key, part in found.items()}
    new = {**kept, "cell_type": style.written(new_type, 0), "source": source}
    if new_type == "code":
        new |= _ONLY_IN_CODE
    dropped = _NOT_IN_CODE if new_type == "code" else _ONLY_IN_CODE.keys()
    return _composed(style, list(found), {key: value for key, value in new.items() if key not in dropped})


def _composed(style: Layout, known: Sequence[str], values: Mapping[str, str]) -> str:
    """Write a cell with its keys as in `known`; new ones come last, or in their places if that is sorted."""
    order = sorted(values)
    if list(known) != sorted(known):
        order = [*(key for key in known if key in values), *sorted(values.keys() - set(known))]
    return style.composed([(key, values[key]) for key in order], _CELL_LEVEL)


def _model(cells: Sequence[Part], number: int, kind: str) -> Part | None:
    """Return the cell whose form a new one takes: the nearest of its type, or else the nearest."""
    nearest = sorted(range(len(cells)), key=lambda other: abs(other - number))
    same = (other for other in nearest if fields(cells[other])["cell_type"] == kind)
    chosen = next(same, nearest[0] if nearest else None)
    return None if chosen is None else cells[chosen]


def _made(notebook: Notebook, kind: str) -> Mapping[str, JsonValue]:
    new: Callable[[], Mapping[str, JsonValue]] = getattr(import_module("nbformat.v4"), f"new_{kind}_cell")
    taken = set(notebook.ids())
    cell = dict(next(cell for cell in iter(new, None) if cell["id"] not in taken))
    cell["source"] = []
    if not notebook.has_ids:
        del cell["id"]
    return cell
