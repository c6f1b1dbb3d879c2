"""Show the last lines of a text file of any size, without line numbers. Fast even for long logs."""

from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.head_tail import last_lines, notes

_BYTES = 59_000
"""Below the limit of the answer, which also holds the notes at its end."""


class Tail(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file, relative to the first root or absolute")
    lines: int = t.Field(default=10, ge=1, description="Number of lines to show")


async def run(args: Tail, rt: t.Runtime) -> t.Output:
    return await rt.fs.read(args.path, lambda file, size: _shown(args, file, size))


def _shown(args: Tail, file: BinaryIO, size: int) -> t.Output:
    found = last_lines(file, size, count=args.lines, max_bytes=_BYTES)
    more = "read_file or grep_search find what is before them" if found.cut else "set lines to see more"
    return t.Output("\n".join((*found.lines, *notes(found, "last", size, more))), truncated=found.cut)


TOOL = t.ToolSpec(
    name="tail",
    title="Show end of file",
    description=__doc__ or "",
    permission=t.Permission.READ_ONLY,
    needs=frozenset({t.Capability.FS_READ}),
    args=Tail,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
)
