"""Put a text on the user's clipboard, in place of what they had copied. On Linux it is there as long as this
server runs.
"""

from mcp_toolserver.tool import Args, Capability, Field, Output, Permission, Runtime, ToolSpec


class WriteClipboard(Args):
    text: str = Field(min_length=1, max_length=100_000, description="The text")


async def run(args: WriteClipboard, rt: Runtime) -> Output:
    await rt.desktop.copy(args.text)
    return Output(f"{len(args.text)} characters are on the clipboard.")


TOOL = ToolSpec(
    name="write_clipboard",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.CLIPBOARD_WRITE}),
    args=WriteClipboard,
    run=run,
    kind="other",
    subjects=lambda _: (),
    destructive=True,
    idempotent=True,
)
