"""Unified diffs, plain (`--- old`, `+++ new`) or as git makes them, with all it says about files.

Numbers in the header of a hunk are believed where they fit what follows. Where they do not, because whoever
wrote the diff miscounted, the hunk ends where the next header begins.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mcp_toolserver.text.patch.file_names import NOWHERE, git_names, has_prefixes, name, without_prefixes
from mcp_toolserver.text.patch.hunk_header import Header, header
from mcp_toolserver.text.patch.model import (
    UNFINISHED,
    Hunk,
    Line,
    Patch,
    Section,
    Source,
    body_line,
    refuse_size,
    without_line_feed,
)

_GIT, _OLD, _NEW = "diff --git ", "--- ", "+++ "
_SIGNATURE = re.compile(r"-- ?")
_EXECUTABLE, _PLAIN = "100755", "100644"
_EXTENDED = (
    *("old mode ", "new mode ", "deleted file mode ", "new file mode ", "index "),
    *("copy from ", "copy to ", "rename from ", "rename to ", "similarity index ", "dissimilarity index "),
)


def parse_unified(text: str) -> Patch:
    """Read a diff; text before the first file and between files is left out.

    Raises:
        ValueError: it is no such diff, or one of something else than text; the text names the line.
    """
    source = Source(text)
    sections = tuple(_sections(source))
    if not sections:
        raise ValueError(
            "the patch names no file: start it with '*** Begin Patch', or with the lines '--- a/path' and "
            "'+++ b/path' before the first '@@'"
        )
    refuse_size(sections)
    return Patch(sections=sections)


def _sections(source: Source) -> Iterator[Section]:
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


def _names_follow(source: Source) -> bool:
    return (source.peek() or "").startswith(_OLD) and (source.peek(1) or "").startswith(_NEW)


def _names(source: Source) -> tuple[str, str]:
    old, new = source.peek() or "", source.peek(1) or ""
    source.skip(2)
    return name(old.removeprefix(_OLD)), name(new.removeprefix(_NEW))


def _plain_section(source: Source) -> Section:
    where = source.number
    old, new = without_prefixes(*_names(source))
    hunks = tuple(_hunks(source))
    if not hunks:
        raise ValueError(f"line {where} of the patch names a file, but no hunk ('@@ -1,2 +1,3 @@') follows")
    return _section(old, new, hunks, where)


def _section(old: str, new: str, hunks: tuple[Hunk, ...], where: int) -> Section:
    if old == NOWHERE == new or not old or not new:
        raise ValueError(f"line {where} of the patch names no file; put a path there")
    if old == NOWHERE:
        return Section(action="create", path=new, hunks=hunks, where=where)
    if new == NOWHERE:
        return Section(action="delete", path=old, hunks=hunks, where=where)
    # Who diffs two copies of a file, such as f.orig and f, wants the one that is named last to change.
    return Section(action="update", path=new, hunks=hunks, where=where)


# --- git -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Git:
    """Git's extended headers of a file, with their line."""

    where: int
    said: dict[str, str]
    """Extended headers, by their first words."""

    def get(self, words: str) -> str | None:
        """Return the rest of the line after the keyword."""
        return self.said.get(f"{words} ")

    @property
    def executable(self) -> bool | None:
        """Raises: ValueError: it is a link or a submodule."""
        modes = [self.get(words) for words in ("new file mode", "new mode", "deleted file mode", "old mode")]
        index = (self.get("index") or "").partition(" ")[2]
        for mode in filter(None, (*modes, index)):
            if mode not in (_EXECUTABLE, _PLAIN):
                raise ValueError(
                    f"line {self.where} of the patch is about a link or a submodule (mode {mode}); only "
                    "files can be changed"
                )
        new = modes[0] or modes[1]
        return None if new is None else new == _EXECUTABLE


def _git_section(source: Source) -> Section:
    where = source.number
    pair = git_names((source.peek() or "").removeprefix(_GIT))
    source.skip()
    git = _Git(where=where, said=dict(_extended(source)))
    if (source.peek() or "").startswith(("Binary files ", "GIT binary patch")):
        raise ValueError(
            f"line {source.number} of the patch is about a file that is not text; send a text diff"
        )
    named = _names(source) if _names_follow(source) else None
    hunks = tuple(_hunks(source))
    executable = git.executable
    if moved := _moved(git, hunks):
        return replace(moved, executable=executable)
    names = _git_paths(pair, named, git)
    if not hunks and executable is None and NOWHERE not in names:
        raise ValueError(f"line {where} of the patch names a file, but says nothing about it; leave it out")
    section = _section(*names, hunks, where)
    return section if section.action == "delete" else replace(section, executable=executable)


def _extended(source: Source) -> Iterator[tuple[str, str]]:
    while (line := source.peek()) is not None:
        words = next((words for words in _EXTENDED if line.startswith(words)), None)
        if words is None:
            return
        source.skip()
        yield words, line.removeprefix(words)


def _moved(git: _Git, hunks: tuple[Hunk, ...]) -> Section | None:
    for word, action in (("rename", "update"), ("copy", "copy")):
        old, new = git.get(f"{word} from"), git.get(f"{word} to")
        if old and new:
            is_copy = action == "copy"
            return Section(
                action="copy" if is_copy else "update",
                path=name(old),
                to=name(new),
                hunks=hunks,
                where=git.where,
            )
    return None


def _git_paths(pair: tuple[str, str] | None, named: tuple[str, str] | None, git: _Git) -> tuple[str, str]:
    """Return the old and the new path; the first line of the section tells whether they have prefixes."""
    if named is None:
        if pair is None:
            raise ValueError(
                f"line {git.where} of the patch does not say clearly which file it is about; "
                "add '--- a/path' and '+++ b/path'"
            )
        old, new = without_prefixes(*pair)
        is_new, is_gone = git.get("new file mode") is not None, git.get("deleted file mode") is not None
        return (NOWHERE if is_new else old), (NOWHERE if is_gone else new)
    if pair is not None and not has_prefixes(*pair):
        return named
    return without_prefixes(*named)


# --- hunks -----------------------------------------------------------------------------------------------


def _hunks(source: Source) -> Iterator[Hunk]:
    number = 0
    while (line := source.peek()) is not None and (found := header(line)) is not None:
        where = source.number
        source.skip()
        counted = _counted(source, found)
        lines = _until_next(source) if counted is None else counted
        if all(one.sign == " " for one in lines):
            raise ValueError(f"the hunk on line {where} of the patch changes nothing: no line has '-' or '+'")
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
    names_follow = line.startswith(_OLD) and (source.peek(offset + 1) or "").startswith(_NEW)
    return names_follow or _SIGNATURE.fullmatch(line) is not None or header(line) is not None


def _until_next(source: Source) -> list[Line]:
    """Read the lines up to the next header, without the empty ones before it."""
    lines: list[Line] = []
    blank = 0
    while (raw := source.raw()) is not None and not _is_boundary(source, 0):
        line = body_line(raw)
        if line is not None:
            lines.append(line)
            blank = 0 if raw.strip("\r") else blank + 1
        elif raw.startswith(UNFINISHED):
            without_line_feed(lines)
        else:
            break
        source.skip()
    return lines[: len(lines) - blank]
