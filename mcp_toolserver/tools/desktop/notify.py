"""Show the user a short desktop notification, for example when long work is done. Returns no answer, and
does not tell whether the user's settings suppress it.
"""

from mcp_toolserver.tool import Args, Capability, Field, Output, Permission, Runtime, ToolSpec


class Notify(Args):
    title: str = Field(min_length=1, max_length=200, description="Title of the notification")
    message: str = Field(min_length=1, max_length=1_000, description="Text of the notification")


async def run(args: Notify, rt: Runtime) -> Output:
    await rt.desktop.notify(args.title, args.message)
    return Output("The notice was handed to the desktop.")


TOOL = ToolSpec(
    name="notify",
    title="Show notification",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.DESKTOP_NOTIFY}),
    args=Notify,
    run=run,
    kind="other",
    subjects=lambda _: (),
)
