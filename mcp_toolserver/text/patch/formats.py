r"""Reads patches: unified diffs, plain or as git makes them, and the form that some models are trained on.

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

Numbers in the header of a hunk are believed where they fit what follows. Where they do not, because whoever
wrote the diff miscounted, the hunk ends where the next header begins.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mcp_toolserver.text.edit.matches import folded
from mcp_toolserver.text.patch.model import (
    UNFINISHED,
    Header,
    Hunk,
    Line,
    Patch,
    Section,
    Source,
    body_line,
    header,
    without_line_feed,
)

MAX_FILES = 100
"""Files of one patch; all are held open at the same time."""

MAX_HUNKS = 1_000


def parse(text: str) -> Patch:
    """Read a patch.

    Raises:
        ValueError: it cannot be read, or is too large; the text says where and what to send.
    """
    # Where even the headers have carriage returns, they come from how the patch was sent.
    if text.count("\r\n") == text.count("\n"):
        text = folded(text)
    is_envelope = any(line.strip() == _BEGIN for line in text.split("\n"))
    sections = tuple((_envelope_sections if is_envelope else _unified_sections)(Source(text)))
    if not sections and is_envelope:
        raise ValueError(f"there is nothing between {_BEGIN!r} and {_END!r}; add a section for each file")
    if not sections:
        raise ValueError(
            "the patch names no file: start it with '*** Begin Patch', or with the lines '--- a/path' and "
            "'+++ b/path' before the first '@@'"
        )
    patch = Patch(sections=sections)
    if len(patch.paths) > MAX_FILES:
        raise ValueError(f"the patch names {len(patch.paths)} files; at most {MAX_FILES} can change at once")
    if sum(len(section.hunks) for section in sections) > MAX_HUNKS:
        raise ValueError(f"the patch has more than {MAX_HUNKS} hunks; send it in parts")
    return patch


# --- the envelope ----------------------------------------------------------------------------------------

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE = "*** Move to: "
_LAST = "*** End of File"
_MARK = "*** "


def _envelope_sections(source: Source) -> Iterator[Section]:
    """Read a patch; what stands before and after the envelope is left out."""
    while source.peek() is not None and source.taken().strip() != _BEGIN:
        pass
    while source.peek() is not None:
        where, line = source.number, source.taken()
        if line.strip() == _END:
            return
        if line.startswith(_ADD):
            yield _added(source, line.removeprefix(_ADD), where)
        elif line.startswith(_DELETE):
            yield Section(action="delete", path=_path(line.removeprefix(_DELETE), where), where=where)
        elif line.startswith(_UPDATE):
            yield _updated(source, line.removeprefix(_UPDATE), where)
        elif line.strip():
            raise ValueError(
                f"line {where} of the patch is neither {_ADD.strip()!r}, {_DELETE.strip()!r}, "
                f"{_UPDATE.strip()!r} nor {_END!r}, one of which must come here"
            )
    raise ValueError(f"the patch has no line {_END!r}; it may have been cut off. Send it whole")


def _path(name: str, where: int) -> str:
    path = name.strip()
    if not path:
        raise ValueError(f"line {where} of the patch names no file; put a path after the colon")
    return path


def _added(source: Source, name: str, where: int) -> Section:
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


def _updated(source: Source, name: str, where: int) -> Section:
    to = None
    if (line := source.peek()) is not None and line.startswith(_MOVE):
        to = _path(source.taken().removeprefix(_MOVE), where + 1)
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
    found = tuple(iter(source.header, None))
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


# --- unified diffs ---------------------------------------------------------------------------------------

_NOWHERE = "/dev/null"

_PREFIXES = frozenset({("a", "b"), ("c", "i"), ("c", "w"), ("i", "w"), ("o", "w"), ("b", "a")})
"""Git's prefixes of old and new names."""

_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)")
_MEANINGS = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}

_GIT, _OLD, _NEW = "diff --git ", "--- ", "+++ "
_SIGNATURE = re.compile(r"-- ?")
_EXECUTABLE, _PLAIN = "100755", "100644"
_CREATED, _DELETED = "new file mode ", "deleted file mode "
_EXTENDED = (
    *(_CREATED, "new mode ", _DELETED, "old mode ", "index "),
    *("copy from ", "copy to ", "rename from ", "rename to ", "similarity index ", "dissimilarity index "),
)


def _unified_sections(source: Source) -> Iterator[Section]:
    """Read a diff; text before the first file and between files is left out."""
    while (line := source.peek()) is not None:
        if line.startswith(_GIT):
            yield _git_section(source)
        elif _names_follow(source):
            yield _plain_section(source)
        elif header(line) is not None:
            raise ValueError(
                f"line {source.number} of the patch begins a hunk, but no '--- path' and '+++ path' before "
                "it name its file"
            )
        else:
            source.skip()


def _names_follow(source: Source, offset: int = 0) -> bool:
    old, new = source.peek(offset) or "", source.peek(offset + 1) or ""
    return old.startswith(_OLD) and new.startswith(_NEW)


def _names(source: Source) -> tuple[str, str]:
    old, new = source.taken(), source.taken()
    return name(old.removeprefix(_OLD)), name(new.removeprefix(_NEW))


def _plain_section(source: Source) -> Section:
    where = source.number
    old, new = _without_prefixes(*_names(source))
    hunks = tuple(_hunks(source))
    if not hunks:
        raise ValueError(f"line {where} of the patch names a file, but no hunk ('@@ -1,2 +1,3 @@') follows")
    return _section(old, new, hunks, where)


def _section(old: str, new: str, hunks: tuple[Hunk, ...], where: int) -> Section:
    if old == _NOWHERE == new or not old or not new:
        raise ValueError(f"line {where} of the patch names no file; put a path there")
    if old == _NOWHERE:
        return Section(action="create", path=new, hunks=hunks, where=where)
    if new == _NOWHERE:
        return Section(action="delete", path=old, hunks=hunks, where=where)
    # Who diffs two copies of a file, such as f.orig and f, wants the one that is named last to change.
    return Section(action="update", path=new, hunks=hunks, where=where)


# --- git -------------------------------------------------------------------------------------------------


def _git_section(source: Source) -> Section:
    where = source.number
    pair = git_names(source.taken().removeprefix(_GIT))
    said = dict(_extended(source))
    if (source.peek() or "").startswith(("Binary files ", "GIT binary patch")):
        raise ValueError(
            f"line {source.number} of the patch is about a file that is not text; send a text diff"
        )
    named = _names(source) if _names_follow(source) else None
    hunks = tuple(_hunks(source))
    executable = _executable(said, where)
    for word in ("rename", "copy"):
        if (old := said.get(f"{word} from ")) and (new := said.get(f"{word} to ")):
            moved = Section(action="update", path=name(old), to=name(new), hunks=hunks, where=where)
            return replace(moved, action="copy" if word == "copy" else "update", executable=executable)
    names = _git_paths(pair, named, said, where)
    if not hunks and executable is None and _NOWHERE not in names:
        raise ValueError(f"line {where} of the patch names a file, but says nothing about it; leave it out")
    section = _section(*names, hunks, where)
    return section if section.action == "delete" else replace(section, executable=executable)


def _extended(source: Source) -> Iterator[tuple[str, str]]:
    """Yield git's extended headers of a file: their first words, and the rest."""
    while (line := source.peek()) is not None:
        words = next((words for words in _EXTENDED if line.startswith(words)), None)
        if words is None:
            return
        yield words, source.taken().removeprefix(words)


def _executable(said: Mapping[str, str], where: int) -> bool | None:
    """Return whether the file becomes executable. Raises: ValueError: it is a link or a submodule."""
    modes = [said.get(words) for words in _EXTENDED[:4]]
    for mode in filter(None, (*modes, said.get("index ", "").partition(" ")[2])):
        if mode not in (_EXECUTABLE, _PLAIN):
            raise ValueError(
                f"line {where} of the patch is about a link or a submodule (mode {mode}); only files can be "
                "changed"
            )
    new = modes[0] or modes[1]
    return None if new is None else new == _EXECUTABLE


def _git_paths(
    pair: tuple[str, str] | None, named: tuple[str, str] | None, said: Mapping[str, str], where: int
) -> tuple[str, str]:
    """Return the old and the new path; the first line of the section tells whether they have prefixes."""
    if named is not None:
        return named if pair is not None and not _has_prefixes(*pair) else _without_prefixes(*named)
    if pair is None:
        raise ValueError(
            f"line {where} of the patch does not say clearly which file it is about; "
            "add '--- a/path' and '+++ b/path'"
        )
    old, new = _without_prefixes(*pair)
    return _NOWHERE if _CREATED in said else old, _NOWHERE if _DELETED in said else new


# --- hunks -----------------------------------------------------------------------------------------------


def _hunks(source: Source) -> Iterator[Hunk]:
    number = 0
    while (found := source.header()) is not None:
        where, counted = source.number - 1, _counted(source, found)
        lines = source.body(lambda: _is_boundary(source, 0)) if counted is None else counted
        number += 1
        yield Hunk(
            number=number,
            where=where,
            lines=tuple(lines),
            start=found.start,
            anchors=() if found.anchor is None else (found.anchor,),
            miscounted=counted is None and found.old is not None,
        )


def _counted(source: Source, wanted: Header) -> list[Line] | None:
    """Read as many lines as the header says; None, with nothing read, if other lines follow."""
    if wanted.old is None or wanted.new is None:
        return None
    old, new, lines, offset = wanted.old, wanted.new, list[Line](), 0
    while old > 0 or new > 0:
        raw = source.raw(offset)
        line = None if raw is None else body_line(raw)
        offset += 1
        if line is not None:
            lines.append(line)
            old -= line.sign != "+"
            new -= line.sign != "-"
        elif raw is not None and raw.startswith(UNFINISHED):
            without_line_feed(lines)
        else:
            return None
    if (source.raw(offset) or "").startswith(UNFINISHED):
        without_line_feed(lines)
        offset += 1
    if old < 0 or new < 0 or _goes_on(source, offset):
        return None
    source.skip(offset)
    return lines


def _goes_on(source: Source, offset: int) -> bool:
    """Whether lines of a hunk follow where it should have ended."""
    while source.peek(offset) == "":
        offset += 1
    line = source.raw(offset)
    return line is not None and line.startswith((" ", "+", "-")) and not _is_boundary(source, offset)


def _is_boundary(source: Source, offset: int) -> bool:
    line = source.peek(offset) or ""
    return _names_follow(source, offset) or bool(_SIGNATURE.fullmatch(line)) or header(line) is not None


# --- names of files -------------------------------------------------------------------------------------


def name(text: str) -> str:
    """Parse a name: without the time stamp that may follow, and without the quotes around unusual ones.

    Raises:
        ValueError: its bytes are no UTF-8.
    """
    text = text.strip(" ")
    if text.startswith('"') and (end := _end_of_quotes(text)) > 0:
        return _unquoted(text[1:end])
    return text.split("\t", 1)[0].rstrip()


def git_names(text: str) -> tuple[str, str] | None:
    """Parse the two names after `diff --git`; None if the end of the first is ambiguous."""
    if text.startswith('"'):
        end = _end_of_quotes(text)
        return (name(text[: end + 1]), name(text[end + 1 :])) if end > 0 else None
    if text.endswith('"'):
        start = text.find(' "')
        return (text[:start], name(text[start:])) if start > 0 else None
    gaps = [match.start() for match in re.finditer(" ", text)]
    pairs = [(text[:gap], text[gap + 1 :]) for gap in gaps]
    alike = [pair for pair in pairs if len({*_without_prefixes(*pair)}) == 1]
    return alike[0] if alike else pairs[0] if len(pairs) == 1 else None


def _has_prefixes(old: str, new: str) -> bool:
    """Whether both names have in front what git puts there; a file that is nowhere has it anyway."""
    one, _, one_rest = old.partition("/")
    two, _, two_rest = new.partition("/")
    if old == _NOWHERE:
        return bool(two_rest) and two in {after for _, after in _PREFIXES}
    if new == _NOWHERE:
        return bool(one_rest) and one in {before for before, _ in _PREFIXES}
    return (one, two) in _PREFIXES and bool(one_rest and two_rest)


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Remove the prefixes of git, such as `a/` and `b/`, from both names, if they are there."""
    return (_cut(old), _cut(new)) if _has_prefixes(old, new) else (old, new)


def _cut(path: str) -> str:
    return path if path == _NOWHERE else path.partition("/")[2]


def _end_of_quotes(text: str) -> int:
    """Return the index of the closing quote of `text`; -1 if there is none."""
    place = 1
    while place < len(text) and text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return place if place < len(text) else -1


def _unquoted(text: str) -> str:
    def meaning(escape: re.Match[bytes]) -> bytes:
        said = escape[1]
        return bytes([int(said, 8) & 0xFF]) if said[:1] in b"01234567" else _MEANINGS.get(said, said)

    try:
        return _ESCAPE.sub(meaning, text.encode()).decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"the file name {text!r} in the patch is not valid UTF-8; leave that file out"
        ) from None
