"""Patches in the form that some models are trained on.

*** Begin Patch
*** Add File: path        lines, each with a `+`
*** Delete File: path
*** Update File: path     hunks; before them perhaps `*** Move to: path`
@@ line before            several say where more and more closely; none is needed
 context
-old
+new
*** End of File           the hunk above ends the file
*** End Patch
"""

from collections.abc import Iterator

from mcp_toolserver.text.patch.model import Header, Hunk, Line, Section, Source, header

BEGIN = "*** Begin Patch"
END = "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE = "*** Move to: "
_LAST = "*** End of File"
_MARK = "*** "


def envelope_sections(source: Source) -> Iterator[Section]:
    """Read a patch; what stands before and after the envelope is left out.

    Raises:
        ValueError: it is not of this form; the text names the line.
    """
    while (line := source.peek()) is not None and line.strip() != BEGIN:
        source.skip()
    source.skip()
    while (line := source.peek()) is not None:
        if line.strip() == END:
            return
        if not line.strip():
            source.skip()
        elif line.startswith(_ADD):
            yield _added(source, line.removeprefix(_ADD))
        elif line.startswith(_DELETE):
            where = source.number
            source.skip()
            yield Section(action="delete", path=_path(line.removeprefix(_DELETE), where), where=where)
        elif line.startswith(_UPDATE):
            yield _updated(source, line.removeprefix(_UPDATE))
        else:
            raise ValueError(
                f"line {source.number} of the patch is neither {_ADD.strip()!r}, {_DELETE.strip()!r}, "
                f"{_UPDATE.strip()!r} nor {END!r}, one of which must come here"
            )
    raise ValueError(f"the patch has no line {END!r}; it may have been cut off. Send it whole")


def _path(name: str, where: int) -> str:
    path = name.strip()
    if not path:
        raise ValueError(f"line {where} of the patch names no file; put a path after the colon")
    return path


def _added(source: Source, name: str) -> Section:
    where = source.number
    source.skip()
    lines: list[Line] = []
    blank = 0
    while (raw := source.raw()) is not None and not raw.startswith(_MARK):
        if raw.strip() and not raw.startswith("+"):
            raise ValueError(
                f"line {source.number} of the patch, in a new file, does not begin with '+'; put one in front"
            )
        lines.append(Line("+", f"{raw[1:]}\n"))
        blank = 0 if raw.strip() else blank + 1
        source.skip()
    lines = lines[: len(lines) - blank]
    hunks = (Hunk(number=1, where=where + 1, lines=tuple(lines), start=0),) if lines else ()
    return Section(action="create", path=_path(name, where), hunks=hunks, where=where)


def _updated(source: Source, name: str) -> Section:
    where = source.number
    source.skip()
    to = None
    if (line := source.peek()) is not None and line.startswith(_MOVE):
        to = _path(line.removeprefix(_MOVE), source.number)
        source.skip()
    hunks: list[Hunk] = []
    while (hunk := _hunk(source, len(hunks) + 1)) is not None:
        hunks.append(hunk)
    if not hunks and to is None:
        raise ValueError(
            f"line {where} of the patch updates a file, but no hunk follows; add one or leave it out"
        )
    return Section(action="update", path=_path(name, where), to=to, hunks=tuple(hunks), where=where)


def _hunk(source: Source, number: int) -> Hunk | None:
    while source.peek() == "":
        source.skip()
    where = source.number
    found = tuple(_headers(source))
    lines = source.body(lambda: (source.raw() or "").startswith((_MARK, "@@")))
    if not (source.raw() or _MARK).startswith((_MARK, "@@")):
        raise ValueError(
            f"line {source.number} of the patch begins with neither ' ', '-', '+' nor '@@'; every line of a "
            "hunk has one of them in front"
        )
    at_end = source.peek() == _LAST
    if at_end:
        source.skip()
    if not found and not lines:
        return None
    return Hunk(
        number=number,
        where=where,
        lines=tuple(lines),
        start=found[-1].start if found else None,
        anchors=tuple(one.anchor for one in found if one.anchor is not None),
        at_end=at_end,
    )


def _headers(source: Source) -> Iterator[Header]:
    while (line := source.peek()) is not None and (found := header(line)) is not None:
        source.skip()
        yield found
