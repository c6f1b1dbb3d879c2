"""Open a URL, a mail address, or a file or folder of the workspace in the user's default program. On Linux
the program ends when this server ends.
"""

from typing import Annotated

from mcp_toolserver.text.desktop.open_target import Target
from mcp_toolserver.tool import (
    Args,
    CanonicalPath,
    Capability,
    Field,
    Output,
    PathsMark,
    Permission,
    Runtime,
    ToolSpec,
)


class Open(Args):
    target: Annotated[Target, PathsMark()] = Field(description="URL, mailto address or path")


async def run(args: Open, rt: Runtime) -> Output:
    if args.target.path:
        await rt.desktop.open_path(CanonicalPath(args.target.path))
    else:
        await rt.desktop.open(args.target.address)
    return Output(f"Opened {args.target}.")


TOOL = ToolSpec(
    name="open",
    title="Open file or address",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.DESKTOP_OPEN}),
    args=Open,
    run=run,
    kind="other",
    subjects=lambda args: (str(args.target),),
)
