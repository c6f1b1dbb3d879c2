"""Start a desktop program, optionally with a URL, a mail address, or a file or folder of the workspace. On
Linux the program ends when this server ends.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.address_or_path import AddressOrPath, OpenTarget


class OpenApp(t.Args):
    app: str = t.Field(
        min_length=1,
        max_length=200,
        pattern=r"^\w[\w .+&'()-]*$",
        description="Name (macOS) or desktop file id, such as `org.gnome.Maps` (Linux)",
    )
    target: Annotated[OpenTarget, t.PathsMark()] = t.Field(
        default_factory=AddressOrPath, description="URL, mailto address or path to open"
    )


async def run(args: OpenApp, rt: t.Runtime) -> t.Output:
    target = args.target
    await rt.desktop.run(t.Capability.DESKTOP_APP, args.app, target.address, path=target.path)
    return t.Output(f"Opened {f'{target} with ' if str(target) else ''}{args.app}.")


TOOL = t.ToolSpec(
    name="open_app",
    title="Start desktop program",
    needs=frozenset({t.Capability.DESKTOP_APP}),
    args=OpenApp,
    run=run,
    subjects=lambda args: (args.app, *filter(None, (str(args.target),))),
)
