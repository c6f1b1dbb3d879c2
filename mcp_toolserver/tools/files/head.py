"""Show the first lines of a text file of any size, without line numbers. For other parts of a file use
read_file.
"""

from dataclasses import dataclass
from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.encoding import Encoding, encoding_of_lines, head_bytes, tail_bytes

_MOST_BYTES = 59_000
"""Below the limit of the answer, which also holds the notes at its end."""


class Head(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file, relative to the first root or absolute")
    lines: int = t.Field(default=10, ge=1, description="Number of lines to show")


async def run(args: Head, rt: t.Runtime) -> t.Output:
    return await rt.fs.read(args.path, lambda file, size: shown(args, file, size, last=False))


def shown(args: Head, file: BinaryIO, size: int, *, last: bool) -> t.Output:
    """Show one end of the file."""
    found = end_lines(file, size, count=args.lines, max_bytes=_MOST_BYTES, last=last)
    if not last:
        more = f"read_file goes on with offset={len(found.lines) - found.cut}"
    elif found.cut:
        more = "read_file or grep_search find what is before them"
    else:
        more = "set lines to see more"
    lines = (*found.lines, *notes(found, "last" if last else "first", size, more))
    return t.Output("\n".join(lines), truncated=found.cut)


_WINDOW = 256 * 1024
"""Maximum bytes of the file that are read."""

_SAMPLE = 64 * 1024
"""Bytes at its start that tell its encoding."""


@dataclass(frozen=True, kw_only=True)
class End:
    """Lines at one end of a file."""

    lines: tuple[str, ...]
    """Without their line endings."""
    whole: bool
    """Whether they are the whole file."""
    cut: bool
    """There are fewer than were asked for, or a part of one: more did not fit."""
    encoding: str
    crlf: bool
    """Whether some of them end in carriage return and line feed."""


def end_lines(file: BinaryIO, size: int, *, count: int, max_bytes: int, last: bool) -> End:
    """Return the first or the `last` `count` lines, in at most `max_bytes` of UTF-8.

    Raises:
        InvalidInput: the file is not text.
    """
    encoding = encoding_of_lines(file.read(_SAMPLE), complete=size <= _SAMPLE)
    start = max(0, size - _WINDOW) if last else 0
    start += start % 2  # a character of UTF-16 has two bytes
    file.seek(start)
    raw = file.read(_WINDOW)
    has_all = not start and len(raw) >= size
    lines = _lines(encoding, raw if start else raw.removeprefix(encoding.bom))
    shown = lines[-count:] if last else lines[:count]
    cut = tail_bytes if last else head_bytes
    fitting = cut("\n".join(shown), max_bytes).split("\n") if shown else []
    return End(
        lines=tuple(line.removesuffix("\r") for line in fitting),
        whole=has_all and fitting == lines,
        cut=fitting != shown or (not has_all and len(shown) == len(lines)),
        encoding=encoding.name,
        crlf=any(line.endswith("\r") for line in fitting),
    )


def _lines(encoding: Encoding, raw: bytes) -> list[str]:
    *whole, last = raw.decode(encoding.codec, errors="replace").split("\n")
    return [*whole, last] if last else whole


def notes(end: End, which: str, size: int, more: str) -> list[str]:
    """Describe which lines are shown; `more` says how to get others."""
    found_notes: list[str] = []
    about = [end.encoding] * (end.encoding != "utf-8") + ["CRLF line endings"] * end.crlf
    if about:
        found_notes.append(f"[{', '.join(about)}]")
    count = len(end.lines)
    if not count:
        found_notes.append("[the file is empty]")
    elif not end.whole:
        lines = f"{which} {count} lines" if count > 1 else f"{which} line"
        cut = ", cut to what fits" if end.cut else ""
        found_notes.append(f"[the {lines} of {size:,} bytes{cut}; {more}]")
    return found_notes


TOOL = t.ToolSpec(
    name="head",
    title="Show start of file",
    permission=t.Permission.READ_ONLY,
    needs=frozenset({t.Capability.FS_READ}),
    args=Head,
    run=run,
    kind="read",
    idempotent=True,
)
