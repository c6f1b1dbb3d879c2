"""Show the first lines of a text file of any size, without line numbers. For other parts of a file use
read_file.
"""

from functools import partial
from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.encoding import Encoding, encoding_of_lines, head_bytes, tail_bytes


class Head(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file, relative to the first root or absolute")
    lines: int = t.Field(default=10, ge=1, description="Number of lines to show")


async def run(args: Head, rt: t.Runtime) -> t.Output:
    return await rt.fs.read(args.path, partial(shown, args, rt.room.of_file, last=False))


_WINDOW = 256 * 1024
"""Maximum bytes of the file that are read."""

_SAMPLE = 64 * 1024
"""Bytes at its start that tell its encoding."""


def shown(args: Head, room: t.Room, file: BinaryIO, size: int, *, last: bool) -> t.Output:
    """Show the first or the `last` lines of the file, as far as they fit.

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
    wanted = lines[-args.lines :] if last else lines[: args.lines]
    cut = tail_bytes if last else head_bytes
    fitting = cut("\n".join(wanted), room.bytes).split("\n") if wanted else []
    # There are fewer than were asked for, or a part of one: more did not fit.
    is_cut = fitting != wanted or (not has_all and len(wanted) == len(lines))
    about = [encoding.name] * (encoding.name != "utf-8")
    about += ["CRLF line endings"] * any(line.endswith("\r") for line in fitting)
    notes = [f"[{', '.join(about)}]"] if about else []
    if not fitting:
        notes.append("[the file is empty]")
    elif not (has_all and fitting == lines):
        notes.append(_part(len(fitting), size, last=last, is_cut=is_cut))
    text = "\n".join((*(line.removesuffix("\r") for line in fitting), *notes))
    return t.Output(text, truncated=is_cut)


def _lines(encoding: Encoding, raw: bytes) -> list[str]:
    *whole, last = raw.decode(encoding.codec, errors="replace").split("\n")
    return [*whole, last] if last else whole


def _part(count: int, size: int, *, last: bool, is_cut: bool) -> str:
    """Say which lines are shown, and how to get others."""
    if not last:
        more = f"read_file goes on with offset={count - is_cut}"
    elif is_cut:
        more = "read_file or grep_search find what is before them"
    else:
        more = "set lines to see more"
    which = "last" if last else "first"
    lines = f"{which} {count} lines" if count > 1 else f"{which} line"
    cut = ", cut to what fits" if is_cut else ""
    return f"[the {lines} of {size:,} bytes{cut}; {more}]"


TOOL = t.ToolSpec(
    name="head",
    title="Show start of file",
    needs=frozenset({t.Capability.FS_READ}),
    args=Head,
    run=run,
    kind="read",
    idempotent=True,
)
