"""Start a desktop program, optionally with a URL, a mail address, or a file or folder of the workspace. On
Linux the program ends when this server ends.
"""

from typing import Annotated

from mcp_toolserver.text.desktop.open_target import OpenTarget, Target
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


class OpenApp(Args):
    app: str = Field(
        min_length=1,
        max_length=200,
        pattern=r"^\w[\w .+&'()-]*$",
        description="Name (macOS) or desktop file id, such as `org.gnome.Maps` (Linux)",
    )
    target: Annotated[Target, PathsMark()] = Field(
        default_factory=OpenTarget, description="URL, mailto address or path to open"
    )


async def run(args: OpenApp, rt: Runtime) -> Output:
    if args.target.path:
        await rt.desktop.launch_path(args.app, CanonicalPath(args.target.path))
    else:
        await rt.desktop.launch(args.app, args.target.address)
    return Output(f"Opened {f'{args.target} with ' if str(args.target) else ''}{args.app}.")


TOOL = ToolSpec(
    name="open_app",
    title="Start desktop program",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.DESKTOP_APP}),
    args=OpenApp,
    run=run,
    kind="other",
    subjects=lambda args: (args.app, *filter(None, (str(args.target),))),
)
