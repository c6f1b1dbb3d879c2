"""Read a short text aloud on the user's machine. Returns when the speech ends."""

from mcp_toolserver.tool import Args, Capability, Field, Limits, Output, Permission, Runtime, ToolSpec


class Say(Args):
    text: str = Field(min_length=1, max_length=1_000, description="Text to read aloud")
    voice: str = Field(
        default="", max_length=60, pattern=r"^(\w[\w +()-]*)?$", description="Name of an installed voice"
    )


async def run(args: Say, rt: Runtime) -> Output:
    await rt.desktop.say(args.text, args.voice)
    return Output(f"Said {len(args.text)} characters.")


TOOL = ToolSpec(
    name="say",
    title="Read text aloud",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.DESKTOP_SAY}),
    args=Say,
    run=run,
    kind="other",
    subjects=lambda _: (),
    may_be_long=True,
    limits=Limits(deadline=160.0),
)
