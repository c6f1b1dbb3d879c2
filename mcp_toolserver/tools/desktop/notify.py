"""Show the user a short desktop notification, for example when long work is done. Returns no answer, and
does not tell whether the user's settings suppress it.
"""

from mcp_toolserver import tool as t


class Notify(t.Args):
    title: str = t.Field(min_length=1, max_length=200, description="Title of the notification")
    message: str = t.Field(default="", max_length=1_000, description="Text of the notification")


async def run(args: Notify, rt: t.Runtime) -> t.Output:
    await rt.desktop.run(t.Capability.DESKTOP_NOTIFY, args.title, args.message)
    return t.Output("The notice was handed to the desktop.")


TOOL = t.ToolSpec(
    name="notify",
    title="Show notification",
    needs=frozenset({t.Capability.DESKTOP_NOTIFY}),
    args=Notify,
    run=run,
)
