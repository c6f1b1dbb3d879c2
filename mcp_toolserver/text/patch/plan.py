"""Computes the effect of a patch on several files before anything is written.

Each section applies to the result of the sections before it. If some cannot be applied, the error lists all
of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.files import CanonicalPath, Contents, FileChange
from mcp_toolserver.errors import Conflict, NotFound, ToolError
from mcp_toolserver.text.edit.unified_diff import unified
from mcp_toolserver.text.lines.encoding import UTF_8, encoded, encoding_of
from mcp_toolserver.text.patch.apply import apply_hunks
from mcp_toolserver.text.patch.model import Patch, Section

_FAILURES = 5
"""Most sections whose errors are listed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The effect of one section."""

    section: Section
    text: str
    """`updated f: 2 hunks`."""
    path: CanonicalPath
    """Path of the content afterwards."""
    notes: tuple[str, ...] = ()
    """Deviations from the patch."""
    diff: str = ""
    """The actual diff, if it deviates from the patch."""


Plan = tuple[Sequence[FileChange], Sequence[Outcome]]
"""The files to write, and the effects to report."""


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file as the sections so far have left it."""

    content: bytes
    like: CanonicalPath | None = None
    """The file whose metadata it gets; None for a new one."""
    executable: bool | None = None


_Files = dict[CanonicalPath, _File | None]
"""All files that the patch names."""


def _existing(files: _Files, path: CanonicalPath) -> _File:
    """Raises: NotFound: there is none."""
    found = files[path]
    if found is None:
        raise NotFound("it does not exist. Name a file that does, or create it in the patch.")
    return found


def _refuse_existing(files: _Files, path: CanonicalPath) -> None:
    """Raises: Conflict: there is one."""
    if files[path] is not None:
        raise Conflict(f"'{path}' exists already. Update it, or delete it in a section before.")


def plan(patch: Patch, contents: Contents) -> Plan:
    """Apply all sections to `contents`, which has every file that they name.

    Raises:
        ToolError: some cannot be carried out; the text says why, each with its file.
    """
    before = {path: None if raw is None else _File(content=raw, like=path) for path, raw in contents.items()}
    files = dict(before)
    outcomes: list[Outcome] = []
    failures: list[ToolError] = []
    for section in patch.sections:
        carry_out = {"create": _created, "delete": _deleted}.get(section.action, _updated)
        try:
            outcomes.append(carry_out(section, files))
        except ToolError as error:
            failures.append(type(error)(f"'{section.path}': {error}"))
    if failures:
        raise _joined(failures)
    return list(_changes(before, files)), outcomes


def _joined(failures: Sequence[ToolError]) -> ToolError:
    shown = [str(error) for error in failures[:_FAILURES]]
    if len(failures) > _FAILURES:
        shown.append(f"{len(failures) - _FAILURES} more sections cannot be carried out either.")
    text = "\n".join(f"- {line}" for line in shown) if len(shown) > 1 else shown[0]
    opening = "The patch cannot be applied" + (":\n" if len(shown) > 1 else ": ")
    return type(failures[0])(f"{opening}{text}{chr(10) if len(shown) > 1 else ' '}No file was changed.")


def _changes(before: _Files, after: _Files) -> Iterable[FileChange]:
    for path, file in after.items():
        if file == before[path]:
            continue
        if file is None:
            yield FileChange(path=path, content=None)
        else:
            yield FileChange(path=path, content=file.content, like=file.like, executable=file.executable)


def _created(section: Section, files: _Files) -> Outcome:
    path = CanonicalPath(section.path)
    _refuse_existing(files, path)
    content = UTF_8.encode("".join(line for hunk in section.hunks for line in hunk.new))
    files[path] = _File(content=content, executable=section.executable or None)
    return Outcome(section=section, text=f"created {path}", path=path)


def _deleted(section: Section, files: _Files) -> Outcome:
    path = CanonicalPath(section.path)
    file = _existing(files, path)
    notes: tuple[str, ...] = ()
    if section.hunks:
        applied = apply_hunks(encoding_of(path, file.content).decode(file.content), section.hunks)
        notes = applied.notes
        if applied.content:
            raise Conflict(
                "the patch deletes the file, but it has other lines than those. Read it again, then retry."
            )
    files[path] = None
    return Outcome(section=section, text=f"deleted {path}", path=path, notes=notes)


def _updated(section: Section, files: _Files) -> Outcome:
    path = CanonicalPath(section.path)
    # Nothing in the section says that there is a file.
    may_create = section.to is None and all(hunk.start == 0 and not hunk.old for hunk in section.hunks)
    if section.hunks and may_create and files[path] is None:
        return _created(section, files)
    to = path if section.to is None else CanonicalPath(section.to)
    file = _existing(files, path)
    if to != path:
        _refuse_existing(files, to)
    new, notes, diff = _patched(section, file)
    if section.takes_away:
        files[path] = None
    files[to] = new
    count = len(section.hunks)
    hunks = f": {count} hunk{'s' * (count > 1)}" if count else ""
    moved = f"{'copied' if section.action == 'copy' else 'moved'} {path} to {to}"
    text = f"updated {path}" if path == to else moved
    return Outcome(section=section, text=f"{text}{hunks}", path=to, notes=notes, diff=diff)


def _patched(section: Section, file: _File) -> tuple[_File, tuple[str, ...], str]:
    """Return the file after its hunks, and the notes and the diff of its `Outcome`."""
    made = file if section.executable is None else replace(file, executable=section.executable)
    if not section.hunks:
        return made, (), ""
    path = section.to or section.path
    encoding = encoding_of(section.path, file.content)
    before = encoding.decode(file.content)
    applied = apply_hunks(before, section.hunks)
    content = encoded(path, applied.content, encoding)
    diff = unified(before, applied.content, path) if applied.loose else ""
    return replace(made, content=content), applied.notes, diff
