"""Applies the text edits of a language server: every position is checked, and no two edits may overlap."""

from collections.abc import Iterable, Iterator, Sequence

from mcp_toolserver.text.code.positions import Encoding, code_lines, line_starts, to_index, to_units

Position = tuple[int, int]
"""Line and units of the server's encoding in the line, from 0."""


TextEdit = tuple[Position, Position, str]
"""The start and the end of the text to replace, and the new text."""


class InvalidEdit(ValueError):
    """An edit does not fit the text; the message says why and follows "an edit"."""


def apply_edits(text: str, edits: Iterable[TextEdit], encoding: Encoding) -> str:
    """Return `text` with all edits, whose positions are those in `text`.

    Insertions at one position keep their order and precede a replacement that starts there. As in the
    protocol, a position behind the end of its line is the end of the line.

    Raises:
        InvalidEdit: a position is not in the text or inside a character, or edits overlap.
    """
    lines, starts = code_lines(text), line_starts(text)

    def offset(position: Position) -> int:
        line, units = position
        if (line, units) == (len(lines), 0):
            return len(text)
        if not (0 <= line < len(lines) and units >= 0):
            raise InvalidEdit(f"is at line {line + 1} of a text that has {len(lines)} lines")
        index = to_index(lines[line], units, encoding)
        if index < len(lines[line]) and to_units(lines[line], index, encoding) != units:
            raise InvalidEdit(f"splits a character in line {line + 1}")
        return starts[line] + index

    placed = [(offset(start), offset(end), new) for start, end, new in edits]
    return "".join(_pieces(text, sorted(placed, key=lambda edit: edit[:2])))


def _pieces(text: str, edits: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    done = 0
    for start, end, new in edits:
        if end < start:
            raise InvalidEdit("ends before it starts")
        if start < done:
            raise InvalidEdit("overlaps another one")
        yield text[done:start]
        yield new
        done = end
    yield text[done:]
