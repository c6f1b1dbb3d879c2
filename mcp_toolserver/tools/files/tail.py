"""Show the last lines of a text file of any size, without line numbers. Fast even for long logs."""

from dataclasses import replace
from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.head_tail import last_lines, notes
from mcp_toolserver.tools.files import head


class Tail(head.Head):
    pass


async def run(args: Tail, rt: t.Runtime) -> t.Output:
    return await rt.fs.read(args.path, lambda file, size: _shown(args, file, size))


def _shown(args: Tail, file: BinaryIO, size: int) -> t.Output:
    found = last_lines(file, size, count=args.lines, max_bytes=head.MOST_BYTES)
    more = "read_file or grep_search find what is before them" if found.cut else "set lines to see more"
    return t.Output("\n".join((*found.lines, *notes(found, "last", size, more))), truncated=found.cut)


TOOL = replace(
    head.TOOL, name="tail", title="Show end of file", description=__doc__ or "", args=Tail, run=run
)
