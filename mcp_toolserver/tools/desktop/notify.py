"""Show the user a short notice on their desktop, such as that long work is done. No answer comes back."""

from mcp_toolserver.tool import Args, Capability, Field, Output, Permission, Runtime, ToolSpec


class Notify(Args):
    title: str = Field(min_length=1, max_length=200, description="First line")
    message: str = Field(min_length=1, max_length=1_000, description="The rest")


async def run(args: Notify, rt: Runtime) -> Output:
    await rt.desktop.notify(args.title, args.message)
    return Output("The notice was handed to the desktop.")


TOOL = ToolSpec(
    name="notify",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.DESKTOP_NOTIFY}),
    args=Notify,
    run=run,
    kind="other",
    subjects=lambda _: (),
)
