"""Open a URL, a mail address, or a file or folder of the workspace in the user's default program. On Linux
the program ends when this server ends.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.address_or_path import OpenTarget


class Open(t.Args):
    target: Annotated[OpenTarget, t.PathsMark()] = t.Field(description="URL, mailto address or path")


async def run(args: Open, rt: t.Runtime) -> t.Output:
    await rt.desktop.run(t.Capability.DESKTOP_OPEN, args.target.address, path=args.target.path)
    return t.Output(f"Opened {args.target}.")


TOOL = t.ToolSpec(
    name="open",
    title="Open file or address",
    needs=frozenset({t.Capability.DESKTOP_OPEN}),
    args=Open,
    run=run,
    subjects=lambda args: (str(args.target),),
)
