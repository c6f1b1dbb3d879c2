"""Show the first lines of a text file of any size, without line numbers. For other parts of a file use
read_file.
"""

from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.head_tail import end_lines, notes

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


TOOL = t.ToolSpec(
    name="head",
    title="Show start of file",
    description=__doc__ or "",
    permission=t.Permission.READ_ONLY,
    needs=frozenset({t.Capability.FS_READ}),
    args=Head,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
)
