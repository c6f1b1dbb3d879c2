"""Read a short text aloud on the user's machine. Returns when the speech ends."""

from mcp_toolserver import tool as t


class Say(t.Args):
    text: str = t.Field(min_length=1, max_length=1_000, description="Text to read aloud")
    voice: str = t.Field(
        default="", max_length=60, pattern=r"^(\w[\w +()-]*)?$", description="Name of an installed voice"
    )


async def run(args: Say, rt: t.Runtime) -> t.Output:
    await rt.desktop.run(t.Capability.DESKTOP_SAY, args.text, args.voice)
    return t.Output(f"Said {len(args.text)} characters.")


TOOL = t.ToolSpec(
    name="say",
    title="Read text aloud",
    needs=frozenset({t.Capability.DESKTOP_SAY}),
    args=Say,
    run=run,
    may_be_long=True,
    limits=t.Limits(deadline=160.0),
)
