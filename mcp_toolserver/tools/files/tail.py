"""Show the last lines of a text file of any size, without line numbers. Fast even for long logs."""

from dataclasses import replace
from functools import partial

from mcp_toolserver import tool as t
from mcp_toolserver.tools.files import head


class Tail(head.Head):
    pass


async def run(args: Tail, rt: t.Runtime) -> t.Output:
    return await rt.fs.read(args.path, partial(head.shown, args, rt.room.of_file, last=True))


TOOL = replace(head.TOOL, name="tail", title="Show end of file", args=Tail, run=run)
