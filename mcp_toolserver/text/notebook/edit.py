"""Edits one cell of a notebook. The rest of the file stays identical, byte for byte."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from pydantic import JsonValue

from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.text.notebook.json_spans import Part, Splice, members, spliced
from mcp_toolserver.text.notebook.json_style import Layout, layout
from mcp_toolserver.text.notebook.notebook import Notebook, fields, parsed, source_of

CellType = Literal["code", "markdown", "raw"]
Mode = Literal["replace", "insert", "delete"]

_CELL_LEVEL = 2
"""Nesting level of a cell in the file."""

_ONLY_IN_CODE: Mapping[str, str] = {"execution_count": "null", "outputs": "[]"}
_NOT_IN_CODE = frozenset({"attachments"})


@dataclass(frozen=True, kw_only=True)
class CellEdit:
    """An edit of one cell, identified by id or number.

    A new cell goes after the one with the id, or gets the number; without either it is the last.
    """

    mode: Mode
    id: str | None = None
    number: int | None = None
    """From 0."""
    source: str = ""
    type: CellType | None = None


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


@dataclass(frozen=True, kw_only=True)
class _Change:
    """The edit before the text is written."""

    splices: Sequence[Splice]
    number: int
    id: JsonValue
    type: str
    before: Mapping[str, JsonValue]
    cells: int


def edit(text: str, change: CellEdit) -> EditedNotebook:
    """Apply `change` to the notebook in `text`.

    Raises:
        InvalidInput: it is no valid notebook, or would be none, or the cell is not named rightly.
        NotFound: it has no such cell.
    """
    notebook = parsed(text)
    place = _place(notebook, change)
    done = _ACTIONS[change.mode](notebook, change, place)
    after = spliced(text, done.splices)
    if after != text:
        try:
            parsed(after)
        except InvalidInput as error:
            raise InvalidInput(f"was not changed, because the result {error}") from None
    outputs = done.before.get("outputs")
    new_source = "" if change.mode == "delete" else change.source
    return EditedNotebook(
        text=after,
        number=done.number,
        id=done.id if isinstance(done.id, str) else "",
        type=done.type,
        before=source_of(done.before) if done.before else "",
        after=new_source,
        old_type=str(done.before.get("cell_type", "")),
        cleared=len(outputs) if after != text and isinstance(outputs, list) else 0,
        detached=change.mode == "replace" and done.type == "code" and "attachments" in done.before,
        cells=done.cells,
    )


def _place(notebook: Notebook, change: CellEdit) -> int:
    """Return the number of the cell, or the number that a new one gets."""
    is_new = change.mode == "insert"
    count = len(notebook.cells)
    if change.id is not None:
        return _numbered(notebook, change.id) + is_new
    number = count if change.number is None else change.number
    if number >= count + is_new:
        raise NotFound(
            f"has {count} cells, counted from 0, and so no place for number {number}; give a lower one"
        )
    return number


def _numbered(notebook: Notebook, wanted: str) -> int:
    if not notebook.has_ids:
        raise NotFound(f"has nbformat 4.{notebook.minor}, where cells have no ids; give cell_number")
    try:
        return notebook.ids().index(wanted)
    except ValueError:
        raise NotFound("has no cell with this cell_id; read_file shows the ids that there are") from None


def _replace(notebook: Notebook, change: CellEdit, number: int) -> _Change:
    cell = notebook.cells[number]
    before = fields(cell)
    old_type = str(before["cell_type"])
    new_type = change.type or old_type
    style = layout(notebook.text, cell.start, _CELL_LEVEL)
    source = _source(style, change.source, like=before)
    if new_type != old_type:
        splices = [Splice(cell.start, cell.end, _converted(notebook, cell, style, new_type, source))]
    elif source_of(before) == change.source:
        splices: list[Splice] = []
    else:
        new = {"source": source, **_ONLY_IN_CODE}
        splices = [
            Splice(member.part.start, member.part.end, new[member.key])
            for member in members(notebook.text, cell.start)[0]
            if member.key in new
        ]
    return _Change(
        splices=splices,
        number=number,
        id=before.get("id"),
        type=new_type,
        before=before,
        cells=len(notebook.cells),
    )


def _insert(notebook: Notebook, change: CellEdit, number: int) -> _Change:
    cells, array = notebook.cells, notebook.array
    new_type = change.type or "code"
    model = _model(cells, number, new_type)
    start, level = (model.start, _CELL_LEVEL) if model else (notebook.start, 0)
    style = layout(notebook.text, start, level)
    made = _made(notebook, new_type)
    values = {key: style.written(value, _CELL_LEVEL + 1) for key, value in made.items()}
    values["source"] = _source(style, change.source, like=fields(model) if model else made)
    order = _order(list(fields(model)) if model else [], values)
    cell = style.composed([(key, values[key]) for key in order], _CELL_LEVEL)
    if not cells:
        splice = Splice(array.start, array.end, style.enclosed(cell, _CELL_LEVEL - 1))
    else:
        first, second = cells[0].end, cells[1].start if len(cells) > 1 else 0
        comma = notebook.text[first:second] or style.between(_CELL_LEVEL - 1)
        at, new = (
            (cells[number].start, cell + comma) if number < len(cells) else (cells[-1].end, comma + cell)
        )
        splice = Splice(at, at, new)
    return _Change(
        splices=[splice], number=number, id=made.get("id"), type=new_type, before={}, cells=len(cells) + 1
    )


def _delete(notebook: Notebook, change: CellEdit, number: int) -> _Change:
    cells, array = notebook.cells, notebook.array
    before = fields(cells[number])
    if len(cells) == 1:
        splice = Splice(array.start, array.end, "[]")
    elif number + 1 < len(cells):
        splice = Splice(cells[number].start, cells[number + 1].start, "")
    else:
        splice = Splice(cells[number - 1].end, cells[number].end, "")
    return _Change(
        splices=[splice],
        number=number,
        id=before.get("id"),
        type=str(before["cell_type"]),
        before=before,
        cells=len(cells) - 1,
    )


_ACTIONS: Mapping[Mode, Callable[[Notebook, CellEdit, int], _Change]] = {
    "replace": _replace,
    "insert": _insert,
    "delete": _delete,
}


def _source(style: Layout, source: str, *, like: Mapping[str, JsonValue]) -> str:
    """Write the source as JSON: one string, or one per line, as the other cell has it."""
    lines: list[JsonValue] = [*source.splitlines(keepends=True)]
    return style.written(source if isinstance(like["source"], str) else lines, _CELL_LEVEL + 1)


def _converted(notebook: Notebook, cell: Part, style: Layout, new_type: str, source: str) -> str:
    """Convert a cell to another type; fields that both types have stay."""
    found, _ = members(notebook.text, cell.start)
    kept = {member.key: notebook.text[member.part.start : member.part.end] for member in found}
    new = {"cell_type": style.written(new_type, 0), "source": source}
    if new_type == "code":
        new = {**new, **_ONLY_IN_CODE}
    dropped = _NOT_IN_CODE if new_type == "code" else _ONLY_IN_CODE.keys()
    values = {key: value for key, value in {**kept, **new}.items() if key not in dropped}
    order = _order([member.key for member in found], values)
    return style.composed([(key, values[key]) for key in order], _CELL_LEVEL)


def _order(known: Sequence[str], keys: Mapping[str, str]) -> list[str]:
    """Order `keys` as in `known`; new ones come last, or in their places if `known` is sorted."""
    if list(known) == sorted(known):
        return sorted(keys)
    return [*(key for key in known if key in keys), *sorted(keys.keys() - set(known))]


def _model(cells: Sequence[Part], number: int, kind: str) -> Part | None:
    """Return the cell whose form a new one takes: the nearest of its type, or else the nearest."""
    nearest = sorted(range(len(cells)), key=lambda other: abs(other - number))
    same = (other for other in nearest if fields(cells[other])["cell_type"] == kind)
    chosen = next(same, nearest[0] if nearest else None)
    return None if chosen is None else cells[chosen]


def _made(notebook: Notebook, kind: str) -> Mapping[str, JsonValue]:
    """Make an empty cell with a unique id."""
    new: Callable[[], Mapping[str, JsonValue]] = getattr(import_module("nbformat.v4"), f"new_{kind}_cell")
    taken = set(notebook.ids())
    cell = dict(next(cell for cell in iter(new, None) if cell["id"] not in taken))
    cell["source"] = []
    if not notebook.has_ids:
        del cell["id"]
    return cell
